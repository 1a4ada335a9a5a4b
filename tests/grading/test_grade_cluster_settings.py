"""Settings of a cluster, and grading by the settings of Slurm and of Kubernetes."""

from __future__ import annotations

import json
import os
import stat
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest

from mlsys_grading.grade.bounds import Bounds
from mlsys_grading.grade.engine import open_engine
from mlsys_grading.grade.job import GradingJob
from mlsys_grading.grade.settings import kubernetes_spec, read_settings, slurm_cluster
from mlsys_labkit import __version__
from mlsys_labkit.errors import LabkitError
from tests.conftest import python
from tests.grading.cluster_helpers import ENGINES, settings_file
from tests.grading.test_grade_engine import answer, job

distributed = pytest.importorskip("distributed")
pytestmark = pytest.mark.xdist_group("dask")


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("engine = ", "no TOML"),
        ("workers = 2", "engine is None; write one of slurm, kubernetes"),
        ("engine = 'local'", "engine is 'local'"),
        ("engine = 'slurm'\nworker = {core = 2}", "there is no setting 'core'"),
        ("engine = 'slurm'\nqueue = 'x'", "there is no setting 'queue'"),
        ("engine = 'slurm'\nworkers = 0", "workers is 0; write a number from 1"),
        ("engine = 'slurm'\nworkers = 2.5", "workers is 2.5"),
        ("engine = 'slurm'\nworker = {timing = 1}", "timing is 1; write true or false"),
        ("engine = 'slurm'\nslurm = {cuesheet = 'x'}", "the cluster does not start"),
        ("engine = 'kubernetes'", "image"),
        ("engine = 'kubernetes'\nkubernetes = {image = 'x', quota = 1}", "there is no setting 'quota'"),
    ],
)
def test_settings_that_are_wrong_are_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, line: str
) -> None:
    monkeypatch.setitem(sys.modules, "dask_kubernetes.operator", Operator)
    with pytest.raises(LabkitError) as caught, open_engine(str(settings_file(tmp_path, text)), 1):
        pass
    assert line in str(caught.value)
    assert "\n" not in str(caught.value)


def test_ctrl_c_handler_survives_a_librarys_handler() -> None:
    code = (
        "import signal\n"
        "from mlsys_grading.grade.cluster import need_library\n"
        "before = signal.getsignal(signal.SIGINT)\n"
        "need_library('dask_jobqueue', 'dask-jobqueue').SLURMCluster\n"
        "print(signal.getsignal(signal.SIGINT) is before)"
    )
    assert python(code).stdout == "True\n"


def test_slurm_job_script_follows_the_settings() -> None:
    settings = read_settings(ENGINES / "slurm.toml")
    gpu = replace(settings, gpus=1, more={**settings.more, "job_extra_directives": ["--gres=gpu:1"]})
    with slurm_cluster(gpu, workers=0) as made:
        script = made.job_script()
    directives = dict.fromkeys(line.removeprefix("#SBATCH ") for line in script.splitlines() if "#SBATCH" in line)
    assert list(directives) == [
        "-J labkit-grade",
        "-p normal",
        "-n 1",
        "--cpus-per-task=8",
        "--mem=64G",  # Slurm's G is 2^30
        "-t 04:00:00",
        "--gres=gpu:1",
    ]
    command = script.splitlines()[-1]
    assert command.startswith(f"{sys.executable} -m distributed.cli.dask_worker tcp://")
    assert "--nthreads 8 " in command
    assert "--resources CPU=8,GPU=1,TIMING=1" in command


def test_settings_files_explain_themselves() -> None:
    for name in ("slurm", "kubernetes"):
        settings = read_settings(ENGINES / f"{name}.toml")
        assert settings.engine == name
        text = (ENGINES / f"{name}.toml").read_text()
        assert "Not run on a real cluster" in text
        assert f"labkit grade lab03_cuda_matmul --engine {name}.toml" in text


SBATCH = """\
#!{python}
import subprocess, sys
log = open("{folder}/log", "a")
script = open(sys.argv[-1]).read()  # as sbatch does before it returns: dask-jobqueue then deletes the file
job = subprocess.Popen(["bash", "-c", script], stdout=log, stderr=log, start_new_session=True)
print("Submitted batch job", job.pid)
"""
SCANCEL = """\
#!{python}
import os, signal, sys
open("{folder}/cancelled", "a").write(sys.argv[-1] + "\\n")
os.killpg(int(sys.argv[-1]), signal.SIGKILL)
"""


def test_a_run_by_slurms_own_script_with_a_stand_in_for_sbatch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The scheduler, the script and the worker that it starts are real; sbatch runs it here."""
    for name, program in (("sbatch", SBATCH), ("scancel", SCANCEL)):
        path = tmp_path / name
        path.write_text(program.format(python=sys.executable, folder=tmp_path))
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))  # for this test's own `answer`
    path = settings_file(
        tmp_path,
        f"""
        engine = "slurm"
        workers = 1
        wait_minutes = 10
        [worker]
        cores = 2
        memory_gib = 2
        [slurm]
        queue = "normal"
        walltime = "00:10:00"
        interface = "lo"
        local_directory = "{tmp_path}"
        """,
    )
    with open_engine(str(path), 1) as engine:
        assert not isinstance(engine.slots, int)
        assert engine.slots() == 2
        done = list(replace(engine, work=answer).run(job(f"s{number}") for number in range(6)))
    assert sorted(each.result.student for each in done) == [f"s{number}" for number in range(6)]
    assert {each.result.status for each in done} == {"graded"}, [each.result.why for each in done]
    assert (tmp_path / "cancelled").read_text().count("\n") == 1
    until = time.monotonic() + 240
    while any(str(tmp_path) in " ".join(each.info["cmdline"] or ()) for each in psutil.process_iter(["cmdline"])):
        assert time.monotonic() < until, "a job outlived its cluster"
        time.sleep(0.1)


class Operator:
    """A stand-in for dask_kubernetes.operator whose cluster is a local one."""

    started: list[Any] = []  # noqa: RUF012

    @staticmethod
    def make_cluster_spec(**given: Any) -> dict[str, Any]:
        def pod(name: str) -> dict[str, Any]:
            return {"spec": {"containers": [{"name": name, "image": given["image"], "env": given["env"]}]}}

        worker = pod("worker") | {"replicas": given["n_workers"]}
        worker["spec"]["containers"][0]["args"] = given["worker_command"]
        return {"metadata": {"name": given["name"]}, "spec": {"worker": worker, "scheduler": pod("scheduler")}}

    @classmethod
    def KubeCluster(cls, custom_cluster_spec: Any, namespace: str, quiet: bool) -> Any:
        cls.started.append((custom_cluster_spec, namespace))
        return distributed.LocalCluster(
            n_workers=1, threads_per_worker=2, dashboard_address=None, resources={"CPU": 2}, silence_logs=50
        )


@pytest.fixture(params=["stand-in", "library"])
def operator(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Any:
    if request.param == "library":
        return pytest.importorskip("dask_kubernetes.operator", reason="dask-kubernetes is not installed")
    monkeypatch.setitem(sys.modules, "dask_kubernetes.operator", Operator)
    return Operator


def test_kubernetes_object_follows_the_settings(operator: Any) -> None:
    settings = read_settings(ENGINES / "kubernetes.toml")
    more = {**settings.more, "worker_pod": {"nodeSelector": {"gpu": "yes"}}}
    spec = kubernetes_spec(replace(settings, gpus=2, more=more))
    worker = spec["spec"]["worker"]
    (container,) = worker["spec"]["containers"]
    assert (spec["metadata"]["name"], worker["replicas"]) == ("labkit-grade", 4)
    assert container["image"] == f"mlsys-grading:{__version__}", "the image of this version"
    assert container["args"][:5] == ["dask-worker", "--nthreads", "4", "--resources", "CPU=4,GPU=2,TIMING=1"]
    assert container["resources"]["limits"] == {"cpu": "4", "memory": "24Gi", "nvidia.com/gpu": "2"}
    assert container["securityContext"] == {"privileged": True}
    assert worker["spec"]["nodeSelector"] == {"gpu": "yes"}
    scheduler = spec["spec"]["scheduler"]["spec"]["containers"][0]
    assert "nvidia.com/gpu" not in json.dumps(scheduler), "a scheduler computes nothing"
    assert any("WORKER_TTL" in str(each) for each in scheduler["env"])
    if operator is not Operator:
        yaml, jsonschema = pytest.importorskip("yaml"), pytest.importorskip("jsonschema")
        (path,) = Path(operator.__file__).parent.rglob("crds/daskcluster.yaml")
        schema = yaml.safe_load(path.read_text())["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
        jsonschema.validate(spec, schema)


def test_a_run_on_kubernetes_starts_grades_and_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "dask_kubernetes.operator", Operator)
    with open_engine(str(ENGINES / "kubernetes.toml"), 1) as engine:
        (done,) = replace(engine, work=answer).run([job()])
    assert done.result.points == 2.0
    assert Operator.started[-1][1] == "grading"


def test_limits_of_the_command_line_override_the_labs() -> None:
    stated = {"metadata": {"mlsys_grading": {"limits": {"memory_gib": 8, "cell_seconds": 60, "gpu": True}}}}
    bounds = Bounds(sandbox=False).of(stated, {"cell_seconds": 5.0, "file_gib": 1})
    assert bounds.limits.memory_bytes == 8 << 30
    assert bounds.limits.file_bytes == 1 << 30
    assert bounds.time_limits.cell_seconds == 5
    assert (bounds.gpu, bounds.timing, bounds.sandbox) == (True, False, False)
    made = job(bounds=bounds)
    assert GradingJob.from_json(made.to_json()) == made
    assert made.name != job(bounds=replace(bounds, gpu=False)).name
    assert Bounds().of({"metadata": {}}) == Bounds().of({}) == Bounds()


@pytest.mark.parametrize(
    ("limits", "line"),
    [
        ({"memory": 8}, "there is no limit 'memory'; there are memory_gib,"),
        ({"memory_gib": 0}, "memory_gib is 0; write a number"),
        ({"memory_gib": "8"}, "memory_gib is '8'"),
        ({"memory_gib": True}, "memory_gib is True"),
        ({"cell_seconds": float("inf")}, "cell_seconds is inf"),
        ({"cell_seconds": float("nan")}, "cell_seconds is nan"),
        ({"gpu": 1}, "gpu is 1; write true or false"),
    ],
)
def test_invalid_limits_are_refused(limits: dict[str, Any], line: str) -> None:
    with pytest.raises(LabkitError, match="limit") as caught:
        Bounds().of({"metadata": {"mlsys_grading": {"limits": limits}}})
    assert line in str(caught.value)
    with pytest.raises(LabkitError, match="limits"):
        Bounds().of({"metadata": {"mlsys_grading": "fast"}})
