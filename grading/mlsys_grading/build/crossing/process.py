"""Rules on the student's process, which has its own globals, settings, streams and files (LK211 to LK217)."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from mlsys_grading.build.crossing import Objection
from mlsys_grading.build.python import attribute, is_true, root_name, words
from mlsys_grading.build.view import View

_SETTINGS = words("""
    torch.set_default_dtype torch.set_num_threads torch.set_default_device torch.set_grad_enabled
    torch.use_deterministic_algorithms torch.set_float32_matmul_precision torch.set_printoptions
    numpy.seterr numpy.set_printoptions sys.setrecursionlimit os.chdir os.putenv os.umask
    locale.setlocale decimal.setcontext socket.setdefaulttimeout signal.signal signal.alarm
""")
_SCOPES = words("torch.no_grad torch.enable_grad torch.inference_mode torch.autocast torch.device")
_STREAMS = words("""
    contextlib.redirect_stdout contextlib.redirect_stderr IPython.utils.capture.capture_output io.redirect_stdout
    pytest.warns pytest.deprecated_call warnings.showwarning logging.captureWarnings
""")
_FILTERS = words("warnings.simplefilter warnings.filterwarnings")
_FILES = words("""
    open os.remove os.listdir os.path.exists os.path.getsize shutil.rmtree numpy.save numpy.load torch.save torch.load
""")
_PATHS = words("write_text write_bytes read_text read_bytes unlink mkdir iterdir")
_THREADS = words("threading concurrent.futures multiprocessing torch.multiprocessing asyncio _thread")
_PROBES = words("count_work trace_accesses call_traced trace_memory expect_peak run_ranks")
_METERS = words("counting_work trace_memory trace_launches")
_TRACES = words("torch.vmap torch.func torch.jit torch.compile torch.fx torch.export numba jax")


def globals_of_the_student(view: View) -> Iterator[Objection]:
    """Find changes and late reads of the student's names: a value is fetched once, before the cell, as a copy."""
    mine = view.student.values | set(view.student.functions) | set(view.student.classes)
    for node in view.nodes:
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store | ast.Del) and node.id in mine:
            yield node, f"binds {node.id}, which is the student's, here alone"
        elif isinstance(node, ast.FunctionDef | ast.ClassDef) and node.name in mine:
            yield node, f"defines {node.name}, which is the student's, here alone"
    first = min((call.lineno for call in view.student_calls), default=None)
    for node in view.nodes:
        if not isinstance(node, ast.Name) or node.id not in view.student.values or first is None:
            continue
        if isinstance(node.ctx, ast.Load) and node.lineno >= first:
            yield node, f"reads {node.id} after a call: it is what it was before the cell"


def patches(view: View) -> Iterator[Objection]:
    """Find patches of a library or of a student's class, which change the examiner alone."""
    for node in view.nodes:
        if isinstance(node, ast.Assign | ast.AugAssign | ast.Delete):
            targets = [node.target] if isinstance(node, ast.AugAssign) else node.targets
            for target in targets:
                if isinstance(target, ast.Attribute) and _is_patched(view, target.value, target.attr):
                    yield node, f"`{view.text(target)}` is patched here, and not where the student's code runs"
        elif isinstance(node, ast.Call) and view.called(node) == "setattr" and _is_patched(view, node.args[0], ""):
            yield node, f"`{view.text(node)}` patches here, and not where the student's code runs"


def _is_patched(view: View, of: ast.AST, name: str) -> bool:
    root = root_name(of)
    is_library = root in view.names and root not in view.assigned
    return (is_library and not (view.called(of) == "sys" and name.startswith("std"))) or view.origin(of) == "class"


def settings(view: View) -> Iterator[Objection]:
    """Find settings of the process, and contexts that change some for a while."""
    for node in view.nodes:
        if isinstance(node, ast.Call) and view.called(node) in _SETTINGS:
            yield node, f"{view.called(node)} sets something here, and not where the student's code runs"
        elif isinstance(node, ast.Assign | ast.AugAssign | ast.Delete):
            for target in [node.target] if isinstance(node, ast.AugAssign) else node.targets:
                if isinstance(target, ast.Subscript) and view.called(target.value) == "os.environ":
                    yield node, "os.environ is set here, and not where the student's code runs"
        elif isinstance(node, ast.With):
            for item in node.items:
                name = view.called(item.context_expr)
                if view.calls_student(node) and (name in _SCOPES or _raises(item.context_expr, name)):
                    yield node, f"{name} holds here, and not where the student's code runs"


def _raises(node: ast.AST, name: str) -> bool:
    """Return whether this is ``np.errstate`` that makes something an error; one that silences does no harm."""
    if name != "numpy.errstate" or not isinstance(node, ast.Call):
        return False
    return any(isinstance(each.value, ast.Constant) and each.value.value != "ignore" for each in node.keywords)


def streams(view: View) -> Iterator[Objection]:
    """Find captures of output, warnings and logs, which stay in the student's process."""
    for node in view.nodes:
        if isinstance(node, ast.Call):
            name = view.called(node)
            given = {each.arg: each.value for each in node.keywords}
            first = node.args[0] if node.args else None
            if name in _STREAMS or attribute(node.func) == "addHandler":
                yield node, f"{attribute(node.func) or name} sees nothing of the student's process"
            elif name == "warnings.catch_warnings" and is_true(given.get("record")):
                yield node, "catch_warnings sees no warning of the student's process"
            elif name in _FILTERS and getattr(first, "value", None) == "error":
                yield node, "a warning of the student's code is no error here"
        elif isinstance(node, ast.Assign):
            for target in node.targets:
                for each in target.elts if isinstance(target, ast.Tuple) else [target]:
                    if view.called(each) in ("sys.stdout", "sys.stderr", "sys.stdin"):
                        yield node, f"{view.called(each)} is replaced here alone"


def files(view: View) -> Iterator[Objection]:
    """Find uses of files: the two processes have no file in common."""
    if not view.student_calls:
        return
    for call in view.calls:
        name = view.called(call)
        if name in _FILES or name.startswith("tempfile."):
            yield call, f"{name}: the student's process has files of its own"
        elif isinstance(call.func, ast.Attribute) and call.func.attr in _PATHS and not view.origin(call.func.value):
            yield call, f".{call.func.attr}(): the student's process has files of its own"


def threads(view: View) -> Iterator[Objection]:
    """Find threads, coroutines and tracers: one thread calls one process, and nothing can trace into that process."""
    for node in view.nodes:
        modules = []
        if isinstance(node, ast.Import):
            modules = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            modules = [node.module]
        for name in modules:
            if any(name == each or name.startswith(f"{each}.") for each in _THREADS):
                yield node, f"{name}: only one thread can ask the student's process"
        if isinstance(node, ast.Await) and view.origin(node.value):
            yield node, "await: a coroutine of the student's runs in no loop of this process"
        elif isinstance(node, ast.Call):
            name = view.called(node)
            is_theirs = any(view.origin(each) in ("function", "object") for each in node.args)
            if is_theirs and any(name == each or name.startswith(f"{each}.") for each in _TRACES):
                yield node, f"{name} cannot trace into the student's process"


def probes(view: View) -> Iterator[Objection]:
    """Find probes around a student's code, or about another function: a probe must name a student's function."""
    for node in view.nodes:
        if isinstance(node, ast.With):
            for item in node.items:
                name = view.called(item.context_expr).rpartition(".")[2]
                if name in _METERS and view.calls_student(node):
                    yield node, f"{name} sees nothing of the student's process"
        elif isinstance(node, ast.Call) and node.args and view.called(node).rpartition(".")[2] in _PROBES:
            about = view.resolved(node.args[0])
            theirs = any(view.origin(each) in ("function", "object") for each in ast.walk(about))
            if theirs and view.origin(about) not in ("function", "object"):
                yield node, f"`{view.text(about)}` is no function of the student's, and is probed here"
