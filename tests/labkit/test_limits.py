"""Machines made of files: the cgroup layouts of Docker, Kubernetes, systemd and a bare host."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings, strategies as st

from mlsys_labkit._base import limits

GIB = 2**30
V2_MOUNT = "29 23 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate"


def machine(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def v2(root: Path, own: str, files: dict[str, str], total_gib: int = 64, available_gib: int = 32) -> Path:
    return machine(
        root,
        {
            "proc/self/cgroup": f"0::{own}\n",
            "proc/self/mountinfo": f"1 0 8:1 / / rw - ext4 /dev/sda rw\n{V2_MOUNT}\n",
            "proc/meminfo": f"MemTotal:  {total_gib << 20} kB\nMemFree: 1 kB\nMemAvailable: {available_gib << 20} kB\n",
            **{f"sys/fs/cgroup/{name}": text for name, text in files.items()},
        },
    )


def v1(root: Path, cgroup: str, mounts: str, files: dict[str, str]) -> Path:
    meminfo = f"MemTotal: {64 << 20} kB\nMemAvailable: {32 << 20} kB\n"
    return machine(
        root,
        {
            "proc/self/cgroup": cgroup,
            "proc/self/mountinfo": mounts,
            "proc/meminfo": meminfo,
            **{f"sys/fs/cgroup/{name}": text for name, text in files.items()},
        },
    )


def test_v2_the_tightest_quota_on_the_way_up_counts(tmp_path: Path) -> None:
    root = v2(
        tmp_path,
        "/kubepods/pod1/box",
        {
            "kubepods/cpu.max": "800000 100000\n",
            "kubepods/pod1/cpu.max": "150000 100000\n",
            "kubepods/pod1/box/cpu.max": "max 100000\n",
            "kubepods/other/cpu.max": "1000 100000\n",
        },
    )
    assert limits.usable_cores(root, visible=16) == 1.5


def test_v2_inside_a_namespace_the_own_group_is_the_mount(tmp_path: Path) -> None:
    root = v2(tmp_path, "/", {"cpu.max": "200000 100000\n", "memory.max": f"{2 * GIB}\n", "memory.current": "0\n"})
    assert limits.usable_cores(root, visible=8) == 2.0
    assert limits.memory_limit_bytes(root) == 2 * GIB


def test_v2_memory_limit_and_room_left(tmp_path: Path) -> None:
    root = v2(
        tmp_path,
        "/user/job",
        {
            "user/memory.max": f"{8 * GIB}\n",
            "user/memory.current": f"{7 * GIB}\n",
            "user/memory.stat": f"anon 5\nactive_file 3\ninactive_file {2 * GIB}\n",
            "user/job/memory.max": f"{4 * GIB}\n",
            "user/job/memory.current": f"{GIB // 2}\n",
        },
    )
    assert limits.memory_limit_bytes(root) == 4 * GIB
    # the job has 3.5 GiB left, its parent 8 - (7 - 2 reclaimable) = 3
    assert limits.memory_free_bytes(root) == 3 * GIB


def test_no_limits_leave_the_hardware(tmp_path: Path) -> None:
    root = v2(tmp_path, "/a", {"a/cpu.max": "max 100000\n", "a/memory.max": "max\n"})
    assert limits.usable_cores(root, visible=12) == 12.0
    assert limits.memory_limit_bytes(root) == 64 * GIB
    assert limits.memory_free_bytes(root) == 32 * GIB


def test_an_overfull_group_has_no_room(tmp_path: Path) -> None:
    root = v2(tmp_path, "/a", {"a/memory.max": f"{GIB}\n", "a/memory.current": f"{2 * GIB}\n"})
    assert limits.memory_free_bytes(root) == 0


def test_affinity_counts_when_it_is_tighter_than_the_quota(tmp_path: Path) -> None:
    root = v2(tmp_path, "/a", {"a/cpu.max": "400000 100000\n"})
    assert limits.usable_cores(root, visible=2) == 2.0


def test_v1_docker_without_a_cgroup_namespace(tmp_path: Path) -> None:
    mounts = (
        "40 39 0:30 /docker/ab12 /sys/fs/cgroup/cpu,cpuacct ro - cgroup cgroup rw,cpu,cpuacct\n"
        "41 39 0:31 /docker/ab12 /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n"
        "42 39 0:32 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n"
    )
    root = v1(
        tmp_path,
        "5:memory:/docker/ab12\n4:cpu,cpuacct:/docker/ab12\n0::/\n",
        mounts,
        {
            "cpu,cpuacct/cpu.cfs_quota_us": "50000\n",
            "cpu,cpuacct/cpu.cfs_period_us": "100000\n",
            "memory/memory.limit_in_bytes": f"{3 * GIB}\n",
            "memory/memory.usage_in_bytes": f"{2 * GIB}\n",
            "memory/memory.stat": f"inactive_file 1\ntotal_inactive_file {GIB}\n",
        },
    )
    assert limits.usable_cores(root, visible=4) == 0.5
    assert limits.memory_limit_bytes(root) == 3 * GIB
    assert limits.memory_free_bytes(root) == 2 * GIB


def test_v1_walks_up_and_knows_how_no_limit_is_written(tmp_path: Path) -> None:
    mounts = (
        "40 39 0:30 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n"
        "41 39 0:31 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
    )
    root = v1(
        tmp_path,
        "3:cpuset:/x\n2:cpu:/jobs/7\n1:memory:/jobs/7\n",
        mounts,
        {
            "cpu/jobs/cpu.cfs_quota_us": "300000\n",
            "cpu/jobs/cpu.cfs_period_us": "100000\n",
            "cpu/jobs/7/cpu.cfs_quota_us": "-1\n",
            "cpu/jobs/7/cpu.cfs_period_us": "100000\n",
            "memory/memory.limit_in_bytes": "9223372036854771712\n",
            "memory/jobs/memory.limit_in_bytes": f"{5 * GIB}\n",
            "memory/jobs/memory.usage_in_bytes": "0\n",
            "memory/jobs/7/memory.limit_in_bytes": "9223372036854771712\n",
        },
    )
    assert limits.usable_cores(root, visible=64) == 3.0
    assert limits.memory_limit_bytes(root) == 5 * GIB


@given(
    quotas=st.lists(st.one_of(st.none(), st.integers(1_000, 6_400_000)), min_size=1, max_size=5),
    visible=st.integers(1, 64),
)
@settings(max_examples=40, deadline=None)
def test_cores_are_the_minimum_over_the_whole_path(
    tmp_path_factory: pytest.TempPathFactory, quotas: list[int | None], visible: int
) -> None:
    path, files = "", {}
    for depth, quota in enumerate(quotas):
        path += f"g{depth}/"
        files[f"{path}cpu.max"] = f"{'max' if quota is None else quota} 100000\n"
    root = v2(tmp_path_factory.mktemp("machine"), "/" + path.rstrip("/"), files)
    expected = min([visible, *[quota / 100_000 for quota in quotas if quota is not None]])
    assert limits.usable_cores(root, visible=visible) == pytest.approx(expected)


@pytest.mark.parametrize(
    "files",
    [
        {},
        {"proc/self/cgroup": "garbage\n\n0::/../..\n", "proc/self/mountinfo": f"short\n{V2_MOUNT}\n"},
        {"proc/self/cgroup": "0::/a\n"},
        {
            "proc/self/cgroup": "0::/a\n",
            "proc/self/mountinfo": V2_MOUNT,
            "sys/fs/cgroup/a/cpu.max": "many\n",
            "sys/fs/cgroup/a/memory.max": "lots\n",
        },
    ],
    ids=["no proc (macOS, Windows)", "nonsense", "no mounts", "unreadable numbers"],
)
def test_limits_fall_back_where_the_machine_reports_nothing(tmp_path: Path, files: dict[str, str]) -> None:
    root = machine(tmp_path, files)
    assert limits.usable_cores(root, visible=3) == 3.0
    assert limits.usable_cores(root) >= 1.0
    total, free = limits.memory_limit_bytes(root), limits.memory_free_bytes(root)
    assert total is None or total > 2**20
    assert free is None or free > 0
    assert limits.cache_bytes(root) == {}


def test_without_procfs_and_psutil_the_answer_is_unknown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise ImportError(name)

    monkeypatch.setattr(limits.importlib, "import_module", missing)
    monkeypatch.delattr(limits.os, "sysconf")  # Windows
    monkeypatch.delattr(limits.os, "sched_getaffinity", raising=False)  # macOS, Windows
    assert limits.memory_limit_bytes(tmp_path) is None
    assert limits.memory_free_bytes(tmp_path) is None
    assert limits.usable_cores(tmp_path) >= 1.0


def test_caches_are_read_without_the_instruction_cache(tmp_path: Path) -> None:
    base = "sys/devices/system/cpu/cpu0/cache"
    files = {}
    for index, (level, kind, size) in enumerate(
        [("1", "Data", "48K"), ("1", "Instruction", "32K"), ("2", "Unified", "2048K"), ("3", "Unified", "105M")]
    ):
        files |= {f"{base}/index{index}/{k}": v for k, v in (("level", level), ("type", kind), ("size", size))}
    assert limits.cache_bytes(machine(tmp_path, files)) == {"l1": 48 * 2**10, "l2": 2 * 2**20, "l3": 105 * 2**20}


def test_limits_of_this_machine_are_plausible() -> None:
    total, free = limits.memory_limit_bytes(), limits.memory_free_bytes()
    assert limits.usable_cores() > 0
    assert total is not None
    assert free is not None
    assert 0 < free <= total
