"""An engine's settings: a TOML file such as those in ``grading/engines/``, for Slurm or Kubernetes.

Each starts its own dask cluster, grades, and takes the cluster down. Not run on a real cluster: Slurm's job script and
Kubernetes's object are made by dask's own libraries, and tests look at those.
"""

from __future__ import annotations

import contextlib
import sys
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mlsys_grading.grade.cluster import DaskWorkers, connected, need_library
from mlsys_labkit.errors import LabkitError

_SCHEDULER = {"cpu": "1", "memory": "2Gi"}
_DASK = {"distributed.scheduler.worker-ttl": "2 minutes"}  # a worker that is silent for so long is given up


@dataclass(frozen=True)
class Settings:
    """The content of a settings file.

    Attributes:
        engine: "slurm" or "kubernetes".
        workers: how many are asked for.
        wait_minutes: how long none may be there.
        cores, memory_gib, gpus: of each worker. It takes as many jobs at once as it has cores.
        timing: whether labs that are timed may run there.
        more: the table named after the engine, handed on to its library.
    """

    engine: str
    workers: int = 1
    wait_minutes: float = 30.0
    cores: int = 4
    memory_gib: float = 16.0
    gpus: int = 0
    timing: bool = True
    more: Mapping[str, Any] = field(default_factory=dict)

    @property
    def resources(self) -> str:
        """The resources in the form that a dask worker takes.

        Example:
            >>> Settings("slurm", cores=8, gpus=1).resources
            'CPU=8,GPU=1,TIMING=1'
        """
        told = [f"CPU={self.cores}", f"GPU={self.gpus}" if self.gpus else "", "TIMING=1" if self.timing else ""]
        return ",".join(filter(None, told))


_NUMBERS = {"workers": 1, "wait_minutes": 0, "cores": 1, "memory_gib": 0, "gpus": 0}
_ENGINES = ("slurm", "kubernetes")


def read_settings(path: Path) -> Settings:
    """Read a settings file. Raises LabkitError, one line, if it is not valid."""
    try:
        plain = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise LabkitError(f"{path}: {error.strerror}; copy one of grading/engines and name it here") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise LabkitError(f"{path}: no TOML ({error})") from None
    engine = plain.pop("engine", None)
    if engine not in _ENGINES:
        raise LabkitError(f"{path}: engine is {engine!r}; write one of {', '.join(_ENGINES)}")
    given: dict[str, Any] = {name: plain.pop(name) for name in ("workers", "wait_minutes") if name in plain}
    given |= plain.pop("worker", {})
    more = plain.pop(engine, {})
    known = {*_NUMBERS, "timing"}
    if unknown := [*plain, *(set(given) - known)]:
        raise LabkitError(f"{path}: there is no setting {unknown[0]!r}; there are {', '.join(sorted(known))}, {engine}")
    for name, least in _NUMBERS.items():
        kinds = (int, float) if name in ("wait_minutes", "memory_gib") else (int,)
        if name in given and (type(given[name]) not in kinds or given[name] < least):
            raise LabkitError(f"{path}: {name} is {given[name]!r}; write a number from {least}")
    if type(given.get("timing", True)) is not bool:
        raise LabkitError(f"{path}: timing is {given['timing']!r}; write true or false")
    return Settings(engine, **given, more=more)


@contextlib.contextmanager
def started(settings: Settings) -> Iterator[DaskWorkers]:
    """Start the cluster for the ``with`` block. Raises LabkitError if it cannot be started."""
    make = slurm_cluster if settings.engine == "slurm" else _kubernetes_cluster
    try:
        cluster = make(settings)
    except LabkitError:
        raise
    except Exception as error:  # the libraries, sbatch and Kubernetes raise many kinds; each becomes one line
        raise LabkitError(f"{settings.engine}: the cluster does not start ({_line(error)})") from None
    try:
        with connected(cluster, 60 * settings.wait_minutes) as found:
            yield found
    finally:
        cluster.close()


def slurm_cluster(settings: Settings, workers: int | None = None) -> Any:
    """Start a scheduler in this process, and ``workers`` Slurm jobs (default: as set), each with one dask worker.

    Reference: https://jobqueue.dask.org/en/latest/generated/dask_jobqueue.SLURMCluster.html
    """
    dask, jobqueue = need_library("dask", "distributed"), need_library("dask_jobqueue", "dask-jobqueue")
    dask.config.set(_DASK)
    more = {"job_name": "labkit-grade", "python": sys.executable, **settings.more}
    more["worker_extra_args"] = [*more.get("worker_extra_args", ()), "--resources", settings.resources]
    own = {"cores": settings.cores, "processes": 1, "memory": f"{settings.memory_gib:g}GiB"}
    count = settings.workers if workers is None else workers
    return jobqueue.SLURMCluster(**more | own, n_workers=count, scheduler_options={"dashboard_address": None})


def kubernetes_spec(settings: Settings) -> dict[str, Any]:
    """Build the ``DaskCluster`` object that dask's operator turns into pods.

    Reference: https://kubernetes.dask.org/en/latest/operator_resources.html
    """
    operator = need_library("dask_kubernetes.operator", "dask-kubernetes")
    more = dict(settings.more)
    command = ["dask-worker", "--nthreads", str(settings.cores), "--resources", settings.resources]
    variables = {"DASK_DISTRIBUTED__SCHEDULER__WORKER_TTL": _DASK["distributed.scheduler.worker-ttl"]}
    try:
        name, image = more.pop("name", "labkit-grade"), more.pop("image")
    except KeyError:
        raise LabkitError(
            "kubernetes: name the image, one with mlsys-grading in it: [kubernetes] image = ..."
        ) from None
    spec: dict[str, Any] = operator.make_cluster_spec(
        name=name, image=image, n_workers=settings.workers, env=variables | more.pop("env", {}), worker_command=command
    )
    pod = spec["spec"]["worker"]["spec"]
    (container,) = pod["containers"]
    amount: dict[str, Any] = {"cpu": str(settings.cores), "memory": f"{settings.memory_gib:g}Gi"}
    amount |= {"nvidia.com/gpu": str(settings.gpus)} if settings.gpus else {}
    container["resources"] = {"requests": amount, "limits": amount}
    spec["spec"]["scheduler"]["spec"]["containers"][0]["resources"] = {"requests": _SCHEDULER}
    container |= more.pop("worker_container", {})
    pod |= more.pop("worker_pod", {})
    more.pop("namespace", None)
    if more:
        raise LabkitError(
            f"kubernetes: there is no setting {next(iter(more))!r}; there are name, namespace, image, env, worker_pod, "
            "worker_container"
        )
    return spec


def _kubernetes_cluster(settings: Settings) -> Any:
    spec = kubernetes_spec(settings)
    operator = need_library("dask_kubernetes.operator", "dask-kubernetes")
    return operator.KubeCluster(custom_cluster_spec=spec, namespace=settings.more.get("namespace"), quiet=True)


def _line(error: BaseException) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
