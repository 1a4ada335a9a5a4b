from mlsys_labkit.planner.activations import (
    Saved as Saved,
    head_activations as head_activations,
    input_activations as input_activations,
    layer_activations as layer_activations,
)
from mlsys_labkit.planner.assumptions import Assumptions as Assumptions
from mlsys_labkit.planner.attention import LatentAttention as LatentAttention
from mlsys_labkit.planner.cluster import CLUSTERS as CLUSTERS, FABRICS as FABRICS, Cluster as Cluster, Fabric as Fabric
from mlsys_labkit.planner.errors import PlanError as PlanError
from mlsys_labkit.planner.estimate import plan as plan
from mlsys_labkit.planner.layout import Layout as Layout
from mlsys_labkit.planner.memory import (
    StageMemory as StageMemory,
    stage_memory as stage_memory,
    stage_parameters as stage_parameters,
)
from mlsys_labkit.planner.published import PublishedRun as PublishedRun, published_runs as published_runs
from mlsys_labkit.planner.result import Plan as Plan, Seconds as Seconds
from mlsys_labkit.planner.searching import search as search
from mlsys_labkit.planner.state import Precision as Precision, StateBytes as StateBytes, zero_bytes as zero_bytes
from mlsys_labkit.planner.traffic import Transfer as Transfer
from mlsys_labkit.planner.transformer import MODELS as MODELS, Flops as Flops, Transformer as Transformer
