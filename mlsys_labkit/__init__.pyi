from mlsys_labkit import (
    access as access,
    checks as checks,
    coach as coach,
    cuda as cuda,
    datasets as datasets,
    device as device,
    drawings as drawings,
    formats as formats,
    lm as lm,
    magics as magics,
    memory as memory,
    planner as planner,
    ranks as ranks,
    roofline as roofline,
    serving as serving,
    specs as specs,
    timing as timing,
    triton_trace as triton_trace,
    widgets as widgets,
    work as work,
)
from mlsys_labkit._frontends import progress as journal  # noqa: F401 - the older name
from mlsys_labkit._frontends.figures import show as show
from mlsys_labkit._frontends.progress import progress as progress
from mlsys_labkit.access import trace_accesses as trace_accesses
from mlsys_labkit.coach import hint as hint, picture as picture, predict as predict
from mlsys_labkit.device import Device as Device, detect as detect
from mlsys_labkit.errors import LabkitError as LabkitError
from mlsys_labkit.magics import (
    load_ipython_extension as load_ipython_extension,
    unload_ipython_extension as unload_ipython_extension,
)
from mlsys_labkit.memory import MemoryTrace as MemoryTrace, trace_memory as trace_memory
from mlsys_labkit.roofline import Roofline as Roofline
from mlsys_labkit.timing import bench as bench, compare as compare
from mlsys_labkit.work import Work as Work, count_work as count_work, counting_work as counting_work

__version__: str
