from mlsys_labkit.serving.arrivals import (
    SharedPrefixes as SharedPrefixes,
    arrival_times as arrival_times,
    load_requests as load_requests,
    log_normal as log_normal,
    request_trace as request_trace,
    save_requests as save_requests,
)
from mlsys_labkit.serving.blocks import BlockPool as BlockPool, Pool as Pool, PrefixPool as PrefixPool, chain as chain
from mlsys_labkit.serving.cache import PagedCache as PagedCache
from mlsys_labkit.serving.clock import StepCost as StepCost
from mlsys_labkit.serving.engine import Engine as Engine
from mlsys_labkit.serving.errors import (
    BlockError as BlockError,
    RecordError as RecordError,
    RequestError as RequestError,
)
from mlsys_labkit.serving.measuring import measure as measure
from mlsys_labkit.serving.metrics import (
    Latency as Latency,
    MemoryUse as MemoryUse,
    RunMetrics as RunMetrics,
    ServiceLevel as ServiceLevel,
)
from mlsys_labkit.serving.records import (
    EngineStep as EngineStep,
    Output as Output,
    Preempted as Preempted,
    Recording as Recording,
    Request as Request,
    Scheduled as Scheduled,
    TokenLogprob as TokenLogprob,
)
from mlsys_labkit.serving.runner import Chunk as Chunk, Runner as Runner
from mlsys_labkit.serving.scheduler import Limits as Limits
from mlsys_labkit.serving.speculative import ModelDraft as ModelDraft, NgramDraft as NgramDraft, accept as accept
from mlsys_labkit.serving.tables import BlockTable as BlockTable

# Earlier names of these classes.
Step = EngineStep
