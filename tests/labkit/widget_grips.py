"""Every handle of the widgets: the field that it sets, and what its text says by the model in Python."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from mlsys_labkit import widgets
from mlsys_labkit._base.units import si
from mlsys_labkit.cuda.nvidia.occupancy import occupancy
from mlsys_labkit.widgets.accelerator_map import model as accelerators
from mlsys_labkit.widgets.block_table import model as block_table
from mlsys_labkit.widgets.compiler_map import model as compilers
from mlsys_labkit.widgets.energy_ladder import model as energy
from mlsys_labkit.widgets.line_fit import model as line_fit
from mlsys_labkit.widgets.memory_bars import model as memory_bars
from mlsys_labkit.widgets.memory_timeline import model as memory_timeline
from mlsys_labkit.widgets.number_formats import model as formats
from mlsys_labkit.widgets.pca import model as pca
from mlsys_labkit.widgets.pipeline_gantt import model as pipeline
from mlsys_labkit.widgets.request_timeline import model as requests
from mlsys_labkit.widgets.scaling_laws import model as scaling
from mlsys_labkit.widgets.serving_planner import model as serving, setup_of
from mlsys_labkit.widgets.strides.model import StridedView, outside
from mlsys_labkit.widgets.tile_walk import model as tiles
from mlsys_labkit.widgets.token_cost import model as token_cost
from mlsys_labkit.widgets.training_planner import model as training, plan_of
from mlsys_labkit.widgets.transformer_sizer import model as sizer
from tests.labkit import every_widget
from tests.labkit.verdict_numbers import plain

State = Mapping[str, Any]
Made = Callable[[], Any]


@dataclass(frozen=True)
class Grip:
    """One handle: the field that it sets, or "" where only the view knows its place, and its text by the model."""

    make: Callable[[], Any]
    label: str
    field: str
    expected: Callable[[State], str]
    drag: tuple[int, int] = (60, 0)
    key: str = "ArrowLeft"
    ends: bool = True  # Home and End reach the ends of its way

    def name(self) -> str:
        """Return the name of the test."""
        return f"{every_widget.folder_of(self.make)}-{self.label}".replace(" ", "_")


def _fits(state: State) -> str:
    free = training.memory(plan_of(state))["free"]
    return f"it fits, {si(free, 'B')} free" if free >= 0 else f"it does not fit, {si(-free, 'B')} too much"


def _serving(state: State) -> str:
    setup = setup_of(state)
    milliseconds, usd = 1e3 * serving.decode_seconds(setup), serving.usd_per_million(setup)
    return f"{state['users']} users: {plain(milliseconds)} ms a token, {plain(usd)} USD a million"


def _roofline(state: State) -> str:
    return f"{plain(state['flops'] / state['bytes'])} FLOP/B"


def _direction(state: State) -> str:
    cov = pca.covariance(state["points"])
    unit = pca.direction(state["angle"], state["tilt"], len(state["points"][0]))
    return f"keeps {plain(100 * pca.kept(cov, unit) / pca.total(cov))} %"


def _components(state: State) -> str:
    share = 1 - pca.tail(state["spectrum"], state["k"]) / sum(state["spectrum"])
    return f"{state['k']} of {len(state['spectrum'])} components: {plain(100 * share)} % kept"


def _line(state: State) -> str:
    error = line_fit.error(state["x"], state["y"], state["slope"], state["intercept"])
    return f"slope {plain(state['slope'])}, intercept {plain(state['intercept'])}: mean squared error {plain(error)}"


def _occupancy(state: State) -> str:
    found = occupancy(state["architecture"], state["threads"], state["registers"], state["shared"])
    return f"{found.blocks_per_sm} blocks"


def _energy(state: State) -> str:
    rungs = {name: (joules, bits) for name, joules, bits, *_ in state["rungs"]}
    arithmetic, bits = rungs[state["operation"]]
    parts = energy.operation(arithmetic, energy.word(*rungs[state["place"]], bits), state["uses"])
    return f"{int(100 * parts['movement'] / sum(parts.values()) + 0.5)} % of the energy is movement"


def _live(state: State) -> str:
    rows = memory_timeline.live(state["events"], len(state["categories"]))
    return f"At event {state['cursor'] + 1}: {si(sum(rows[state['cursor']]), 'B')} live"


def _moment(state: State) -> str:
    names = ("schedule", "stages", "micro_batches", "chunks")
    drawn = state["bars"] or pipeline.bars(*(state[name] for name in names), 1, state["backward"])
    at = state["cursor"] / 1000 * max(bar[4] for bar in drawn)
    busy = sum(bar[3] <= at < bar[4] for bar in drawn if bar[1] != "call")
    time, who = (si(at, "s"), "ranks") if state["bars"] else (f"{plain(at)} F", "stages")
    return f"{time}: {busy} of {state['stages']} {who} compute"


def _goodput(state: State) -> str:
    met, _ = requests.goodput(state["rows"], state["ttft"], state["tpot"], state["seconds"])
    return f"{si(state['ttft'], 's')}: {int(met)} of {len(state['rows'])} requests in time"


def _tile(state: State) -> str:
    across = tiles.steps(state["n"], state["tile"])
    row, column = divmod(state["block"], across)
    shared = si(tiles.shared_bytes(state["tile"], state["item"]), "B")
    return f"row {row}, column {column} of {across}: {shared} in shared memory"


def _bar(state: State) -> str:
    shape, layout = next(one for one in state["presets"] if one["name"] == state["name"]), state["layout"]
    peak = memory_bars.stage(shape, layout, memory_bars.fullest(shape, layout))[5]
    return f"ZeRO-{layout['zero']}, {layout['data']} data parallel ranks: {si(peak, 'B')}"


def _blocks(state: State) -> str:
    used = block_table.pool(block_table.tables(state["steps"], state["step"]), state["size"])
    return f"{block_table.counts(used, state['size'])[0]} of {state['total']} blocks in use"


def _outside(state: State) -> str:
    view = StridedView(tuple(state["shape"]), tuple(state["strides"]), state["offset"])
    return f"offset {state['offset']}: {outside(view, state['size'])} elements outside memory"


def _stored(state: State) -> str:
    made = next(one for one in state["formats"] if one["name"] == state["format"])
    return f"stored as {formats.decode(made, formats.nearest(made, state['value'])):.8g}"


def _depth(state: State) -> str:
    levels = [[level for level, _ in each] for _, _, each in state["kinds"]]
    kind = state["kinds"][accelerators.order(levels, state["change"])[-state["now"]]]
    level, reason = kind[2][state["change"]]
    return f"{kind[0]} takes {state['takes'][level]}: {reason}"


def _stop(state: State) -> str:
    return compilers.ways(state["edges"], state["start"], state["end"])[0][state["now"]]


def _sample(name: str) -> Made:
    return lambda: every_widget.every()[name]()


def _million(state: State) -> str:
    return f"{plain(token_cost.million(state))} USD a million"


def _margin(state: State) -> str:
    return f"{plain(abs(state['rent'] - sum(token_cost.hour(state).values())))} USD an hour"


def _loss(state: State) -> str:
    parameters = state["parameters"]
    return f"loss {scaling.loss(state['law'], parameters, state['flops'] / 6 / parameters):.3f}"


def _lane(state: State) -> str:
    return f"Lane {state['lane']}: byte {128 * state['lane']}"  # of a column of 32 floats


def _size(state: State) -> str:
    return f"{si(sum(sizer.parts(state['shape'])))} parameters"


def _first(state: State) -> str:
    return str(state["first"])


def _round(state: State) -> str:
    return f"after {state['step']} of "


def grips() -> list[Grip]:
    """Return all handles."""
    return [
        Grip(widgets.token_cost, "Hours that are sold", "utilisation", _million, (80, 0)),
        Grip(widgets.token_cost, "Price of the machine", "price", _million),
        Grip(widgets.token_cost, "Asked for an hour, USD", "rent", _margin, (-60, 0)),
        Grip(_sample("training"), "Cut between layers", "pipeline", _fits, (0, -60), "ArrowDown"),
        Grip(_sample("training"), "Cut through layers", "tensor", _fits, (-200, 0)),
        Grip(_sample("training"), "Copies of the model", "data", _fits),
        Grip(_sample("scaling"), "Parameters", "parameters", _loss),
        Grip(_sample("serving"), "Users in the batch", "users", _serving, (120, 0)),
        Grip(_sample("roofline"), "FLOP per byte", "flops", _roofline),
        Grip(_sample("pca"), "End of the line", "angle", _direction),
        Grip(_sample("pca"), "Eigenvalues kept", "k", _components, (170, 0)),
        Grip(_sample("line"), "Your line on the map", "slope", _line),
        Grip(_sample("line"), "Right end of the line", "slope", _line, (0, -60), "ArrowDown"),
        Grip(_sample("line"), "Left end of the line", "intercept", _line, (0, -60), "ArrowDown"),
        Grip(widgets.occupancy, "Dot of the block's threads", "threads", _occupancy),
        Grip(widgets.occupancy, "Dot of the registers", "registers", _occupancy),
        Grip(widgets.occupancy, "Dot of the shared bytes", "shared", _occupancy, (90, 0)),
        Grip(_sample("energy"), "Rung to fetch from", "place", _energy, (0, -24), "ArrowDown"),
        Grip(_sample("energy"), "Edge between arithmetic and movement", "uses", _energy, (300, 0)),
        Grip(_sample("memory"), "Cursor", "cursor", _live, (-250, 0), "ArrowRight"),
        Grip(widgets.pipeline_gantt, "Moment on the schedule", "cursor", _moment),
        Grip(_sample("request_timeline"), "Bound of the first token", "ttft", _goodput, (200, 0)),
        Grip(lambda: widgets.warp_access(pattern="column"), "Chosen thread of the warp", "lane", _lane),
        Grip(lambda: widgets.tile_walk(256, 32), "Tile of C", "block", _tile, (60, 40)),
        Grip(_sample("hardware"), "First machine on the plot", "first", _first, (420, -250)),
        Grip(widgets.transformer_sizer, "Width and layers", "shape", _size, (60, 20)),
        Grip(lambda: widgets.memory_bars("llama-2-7b"), "Top of the bar", "layout", _bar, (150, 0)),
        Grip(_sample("block_table"), "Time of the run", "step", _blocks, (200, 0)),
        Grip(widgets.collective_animator, "Time in messages", "step", _round, (200, 0)),
        Grip(widgets.strides, "Start of the view in memory", "offset", _outside, (60, 0)),
        Grip(lambda: widgets.number_formats(0.3, "fp8_e5m2"), "Number", "value", _stored, ends=False),
        Grip(widgets.accelerator_map, "The change, on a machine", "", _depth, (0, 60), "ArrowDown"),
        Grip(widgets.compiler_map, "Token on its way", "", _stop, (230, 0)),
    ]
