"""The peak memory of a rank of each pipeline stage."""

from __future__ import annotations

from dataclasses import dataclass

from mlsys_labkit.planner import activations
from mlsys_labkit.planner.layout import Layout
from mlsys_labkit.planner.state import zero_bytes
from mlsys_labkit.planner.transformer import Transformer
from mlsys_labkit.planner.transient_memory import passing_bytes


@dataclass(frozen=True)
class StageMemory:
    """Bytes on one rank of a pipeline stage.

    Args:
        stage: from 0.
        parameter_count: weights of this rank before ZeRO shares them out, "dense" and "expert" ones.
        activations: of all micro-batches in flight.
        buffers: what comes and goes, at its largest: gathered layers and whole gradients under ZeRO, gradients of the
            loss, the layer that recomputation brings back.
        host: the optimizer's state where it is offloaded; not on the GPU.
        peak: the largest sum at any one moment. With several micro-batches gradients are kept from the first one to the
            step, so that is ``total``, unless the embedding's gradient comes to more than the activations that are gone
            by then. In a single micro-batch gradients come as the activations go, so it is less.
    """

    stage: int
    parameter_count: tuple[float, float]
    parameters: float
    gradients: float
    optimizer: float
    activations: float
    buffers: float
    host: float
    peak: float

    @property
    def total(self) -> float:
        """Sum of the categories."""
        return self.parameters + self.gradients + self.optimizer + self.activations + self.buffers


def stage_parameters(model: Transformer, layout: Layout, stage: int) -> tuple[float, float]:
    """Return the numbers of (dense, expert) weights on one rank of a stage, before ZeRO.

    Tensor parallelism splits matrices and vocabulary and leaves norms, routers and position tables whole. With a tied
    output layer and more than one stage, the first and the last stage each hold the token table, as in Megatron-LM.

    Example:
        >>> from mlsys_labkit.planner import Layout, Transformer
        >>> stage_parameters(Transformer.named("llama-3-8b"), Layout(), 0)     # all of the published 8.03 billion
        (8030261248.0, 0.0)
    """
    layers, t = layout.layers(model, stage), layout.tensor
    dense_layers = layout.dense_layers(model, stage)
    sparse = layers - dense_layers
    bias = model.width * model.biased  # added after the sum over ranks, so every one has it
    whole = (1 if model.parallel else 2) * model.norm_parameters
    single = 2 * model.width * model.kv_width if model.kv_heads == 1 else 0  # one key-value head cannot be split
    if model.latent:
        single = model.latent.shared(model.width)  # the short vectors are the same for all heads
    attention = (model.attention_parameters - bias - single) / t + bias + single
    mlp = (model.expert_parameters - bias) / t + bias
    dense, expert = layers * (attention + whole), 0.0
    if model.experts > 1:
        expert = sparse * mlp * model.experts / layout.expert
        dense += sparse * (mlp * model.shared_experts + model.router_parameters)
        dense += dense_layers * ((model.dense_mlp_parameters - bias) / t + bias)
    else:
        dense += layers * mlp
    first, last = stage == 0, stage == layout.pipeline - 1
    table = model.vocabulary * model.width / t
    if first:
        dense += table + model.positions * model.width
    if last:
        dense += model.norm_parameters
        dense += model.extra_predictions * (3 * model.norm_parameters + 2 * model.width**2 / t)
        dense += table if not (model.tied and first) else 0
    return dense, expert


def stage_memory(model: Transformer, layout: Layout, stage: int) -> StageMemory:
    """Return the memory of one rank of a stage, in bytes.

    Example:
        >>> model = Transformer.named("llama-2-7b")
        >>> memory = stage_memory(model, Layout(data=8, zero=3, global_batch=8, sequence=4096), stage=0)
        >>> round(memory.parameters / 1e9, 2), round(memory.optimizer / 1e9, 2), round(memory.activations / 1e9, 2)
        (1.68, 10.11, 17.86)
    """
    dense, expert = stage_parameters(model, layout, stage)
    precision = layout.precision
    stages = 2 if layout.schedule == "dualpipe" else 1  # stages on a rank; another rank has the same two
    state = zero_bytes(stages * dense, stages * layout.sharded, layout.zero, precision)
    experts = zero_bytes(stages * expert, stages * max(1, layout.sharded // layout.expert), layout.zero, precision)
    parameters, gradients = state.parameters + experts.parameters, state.gradients + experts.gradients
    optimizer = state.optimizer + experts.optimizer
    held, passing = _activations(model, layout, stage), passing_bytes(model, layout, stage, dense + expert)
    head = _head_activations(model, layout, stage)
    away = optimizer if layout.offload == "optimizer" else 0.0
    buffers = passing.always + max(passing.loss, passing.layer)
    begins = held + buffers + (gradients if layout.micro_batches > 1 else 0.0)  # backward
    ends = gradients + max(passing.always + passing.layer - passing.again, passing.embedding)
    # The last layer's experts: what the loss held is gone, and the output layer's gradient is there.
    table = model.vocabulary * model.width / layout.tensor * precision.gradient_bytes if head else 0.0
    inside = held - head + passing.always + passing.layer + passing.experts
    inside += gradients if layout.micro_batches > 1 else table
    return StageMemory(
        stage=stage,
        parameter_count=(dense, expert),
        parameters=parameters,
        gradients=gradients,
        optimizer=optimizer - away,
        activations=held,
        buffers=buffers,
        host=away,
        peak=parameters + optimizer - away + max(begins, ends, inside if passing.experts else 0.0),
    )


def _activations(model: Transformer, layout: Layout, stage: int) -> float:
    total = activations.total_bytes
    dense, layers = layout.dense_layers(model, stage), layout.layers(model, stage)
    each = (layers - dense) * activations.kept_layer(model, layout)
    each += dense * activations.kept_layer(model, layout, dense=True) if dense else 0.0
    each += total(activations.stage_activations(model, layout))
    if stage == 0:
        each += total(activations.input_activations(model, layout))
    held = layout.in_flight(stage) * each
    return held + _head_activations(model, layout, stage)


def _head_activations(model: Transformer, layout: Layout, stage: int) -> float:
    """Return what the last stage holds of one micro-batch besides its layers: its backward follows at once."""
    if stage != layout.pipeline - 1:
        return 0.0
    return activations.total_bytes(activations.head_activations(model, layout)) * (1 + model.extra_predictions)
