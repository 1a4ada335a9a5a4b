from mlsys_labkit.errors import RanksError as RanksError
from mlsys_labkit.planner import (
    CLUSTERS as CLUSTERS,
    MODELS as MODELS,
    Assumptions as Assumptions,
    Cluster as Cluster,
    Layout as Layout,
    Plan as Plan,
    PlanError as PlanError,
    Precision as Precision,
    StageMemory as StageMemory,
    StateBytes as StateBytes,
    Transformer as Transformer,
    layer_activations as layer_activations,
    plan as plan,
    search as search,
    stage_memory as stage_memory,
    zero_bytes as zero_bytes,
)
from mlsys_labkit.ranks.cell import pull as pull
from mlsys_labkit.ranks.errors import (
    DeadlockError as DeadlockError,
    MismatchError as MismatchError,
    RankError as RankError,
)
from mlsys_labkit.ranks.launch import each as each, run as run
from mlsys_labkit.ranks.result import Run as Run
from mlsys_labkit.ranks.simulation.clock import simulate as simulate
from mlsys_labkit.ranks.simulation.patterns import pattern as pattern
from mlsys_labkit.ranks.simulation.programs import (
    FREE as FREE,
    Collective as Collective,
    Compute as Compute,
    Irecv as Irecv,
    Isend as Isend,
    Recv as Recv,
    Send as Send,
    Wait as Wait,
    node_links as node_links,
)
from mlsys_labkit.ranks.simulation.replay import replay as replay
from mlsys_labkit.ranks.simulation.schedules import (
    PipelineStep as PipelineStep,
    Schedule as Schedule,
    bubble as bubble,
    pipeline_programs as pipeline_programs,
    schedule as schedule,
)
from mlsys_labkit.ranks.simulation.theory import (
    bus_bandwidth as bus_bandwidth,
    bus_factor as bus_factor,
    collective_seconds as collective_seconds,
    collective_traffic as collective_traffic,
)
from mlsys_labkit.ranks.tasks import snapshot as snapshot, task as task
from mlsys_labkit.ranks.trace.analysis import (
    CriticalPath as CriticalPath,
    bubble_fraction as bubble_fraction,
    critical_path as critical_path,
    live_micro_batches as live_micro_batches,
    rank_seconds as rank_seconds,
)
from mlsys_labkit.ranks.trace.events import Edge as Edge, Event as Event, RunTrace as RunTrace
from mlsys_labkit.ranks.whole_program import run_program as run_program
from mlsys_labkit.work.network_link import Link as Link

# Earlier names of these classes.
Step = PipelineStep
Trace = RunTrace
