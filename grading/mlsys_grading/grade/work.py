"""Work of a worker: a job in, a result out, both as JSON, for threads here and for a cluster.

The worker runs no student's code itself: each of its threads keeps one fork server, a process that forks confined
processes. Trouble of the machine ends that server, so that the next job starts with another. All are clones of one that
does nothing else, which has imported the modules of the lab. That one is itself a clone of the first server, which has
spent the seconds that the imports of every lab take.
"""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from functools import cache

from mlsys_grading.examine.files_beside import with_files
from mlsys_grading.examine.pairs import USERS_OF_PAIRS, Pairs
from mlsys_grading.examine.plan import SubmissionPlan, make_plan
from mlsys_grading.examine.run import Examined, examine_submission
from mlsys_grading.fork_server.client import ForkServer, ForkServerError
from mlsys_grading.gpu.devices import GpuDevice, visible_devices
from mlsys_grading.gpu.lease import lease
from mlsys_grading.grade.bounds import Bounds
from mlsys_grading.grade.headers import lent_headers
from mlsys_grading.grade.job import GradingJob, versions
from mlsys_grading.grade.modules import ALWAYS
from mlsys_grading.result import Result
from mlsys_grading.sandbox.confine import Sandbox, refusal
from mlsys_grading.sandbox.root import readable_paths
from mlsys_labkit.errors import LabkitError

Devices = Callable[[], Sequence[GpuDevice]]
Lease = Callable[[Sequence[GpuDevice]], AbstractContextManager[GpuDevice]]
_GRACE_SECONDS = 60.0
_FIRST_USER = 200_000
_refusal = cache(refusal)


class GradingWorker:
    """A grader of jobs, in as many threads as call ``work``."""

    def __init__(self, devices: Devices = visible_devices, lease: Lease = lease) -> None:
        self._devices, self._lease = devices, lease
        self._gpus: threading.Semaphore | None = None
        self._starting = threading.Lock()
        self._first: ForkServer | None = None  # has imported what every lab needs; a lab's original is its clone
        self._originals: dict[tuple[str, ...], ForkServer] = {}  # modules -> the server that is cloned
        self._mine = threading.local()  # server and modules per thread: a server ends with the thread that started it
        self._servers: dict[ForkServer, tuple[str, ...]] = {}
        self._is_closed = False

    def work(self, text: str) -> str:
        """Grade one job.

        Args:
            text: JSON of a Job.

        Returns:
            JSON of {"result": a Result as text, "contract": what calls did}. What fails here and not in the submission
            comes back as a Result with the status "infrastructure".
        """
        job = GradingJob.from_json(text)
        plan = with_files(make_plan(job.source, job.submission), job.beside, job.shipped)
        try:
            examined = self._examine(job, plan)
        except (LabkitError, OSError, ValueError) as error:
            examined = Examined((), trouble=f"{type(error).__name__}: {error}")
        if examined.trouble:
            self._drop()
            return json.dumps({"result": infrastructure(job, examined.trouble).to_json(), "contract": None})
        return json.dumps({"result": _result(job, plan, examined).to_json(), "contract": dict(examined.contract)})

    def close(self) -> None:
        """End all servers and everything they grade: threads that wait get an infrastructure failure."""
        self._is_closed = True
        for server in [*self._servers, *self._originals.values(), *filter(None, [self._first])]:
            server.close()

    def _examine(self, job: GradingJob, plan: SubmissionPlan) -> Examined:
        bounds = job.bounds
        if bounds.sandbox and (reason := _refusal()):
            raise ForkServerError(f"this machine allows no sandbox: {reason}")
        server = self._server(job.modules)
        # User ids of each server's own, so that every sandbox on this machine has its own.
        user = _FIRST_USER + USERS_OF_PAIRS * (server.pid % 100_000)
        sandbox = _sandbox(bounds, job.modules, user) if bounds.sandbox else None
        with self._gpu(bounds) as gpu, _bounded(server, 2 * bounds.time_limits.wall_seconds + _GRACE_SECONDS):
            sandbox = gpu.shown_in(sandbox) if gpu and sandbox else sandbox
            # Beside a cell that is timed, nothing else may run; a GPU is not known before it is leased.
            ahead = sandbox is not None and not (bounds.timing or bounds.gpu)
            pairs = self._mine.pairs if ahead else None
            if not ahead:
                self._mine.pairs.close()
            return examine_submission(server, plan, job.contract, bounds.time_limits, sandbox, pairs)

    @contextlib.contextmanager
    def _gpu(self, bounds: Bounds) -> Iterator[GpuDevice | None]:
        """Lease a GPU for this job alone, if it needs one; threads wait here, other graders at the lease."""
        if not bounds.gpu:
            yield None
            return
        devices = self._devices()
        with self._starting:
            self._gpus = self._gpus or threading.Semaphore(max(1, len(devices)))
        with self._gpus, self._lease(devices) as device:
            yield device

    def _server(self, modules: tuple[str, ...]) -> ForkServer:
        """Return this thread's server, which has imported ``modules``."""
        known: ForkServer | None = getattr(self._mine, "server", None)
        if known is None or not known.is_alive or self._mine.modules != modules:
            self._drop()
            with self._starting:
                original = self._originals.get(modules)
                if original is None or not original.is_alive:
                    if self._first is None or not self._first.is_alive:
                        self._first = ForkServer(ALWAYS)
                    original = self._originals[modules] = self._first.clone(modules)
                known = original.clone()
                self._servers[known] = modules
                for unused in self._originals.keys() - set(self._servers.values()):  # its lab is done
                    self._originals.pop(unused).close()
            self._mine.server, self._mine.modules, self._mine.pairs = known, modules, Pairs(known, ahead=True)
        if self._is_closed:
            self.close()  # also ends servers that were started meanwhile
            raise ForkServerError("grading has been stopped")
        return known

    def _drop(self) -> None:
        server: ForkServer | None = getattr(self._mine, "server", None)
        if server is not None:
            self._mine.server = None
            self._servers.pop(server, None)
            server.close()
            self._mine.pairs.close()


_here = GradingWorker()


def work(text: str) -> str:
    """Call ``GradingWorker.work`` of this process, for executors that run a function elsewhere."""
    return _here.work(text)


def infrastructure(job: GradingJob, why: str) -> Result:
    """Make the result of a job that no worker could do: no marks."""
    return Result(job.name, job.lab, job.student, (), status="infrastructure", why=" ".join(why.split()))


def _result(job: GradingJob, plan: SubmissionPlan, examined: Examined) -> Result:
    return Result(
        job.name,
        job.lab,
        job.student,
        examined.marks,
        failed_cells=dict(examined.failed_cells),
        oddities=(*plan.oddities, *job.left_out),
        restarts=examined.restarts,
        sandbox=job.bounds.sandbox,
        seconds=examined.seconds,
        versions=versions(),
    )


@contextlib.contextmanager
def _bounded(server: ForkServer, seconds: float) -> Iterator[None]:
    """End a server that hangs: threads that wait for it then get an error at once."""
    timer = threading.Timer(seconds, server.close)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _sandbox(bounds: Bounds, modules: tuple[str, ...], user: int) -> Sandbox:
    headers = lent_headers(modules)
    if headers is None:
        return Sandbox(limits=bounds.limits, user=user)
    lent = {"LABKIT_CUDA_LENT": str(headers)}
    return Sandbox(limits=bounds.limits, user=user, readable=readable_paths([str(headers)]), environment=lent)
