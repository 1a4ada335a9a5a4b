"""Tests of leases of GPUs, on machines that are lists: no real GPU takes part."""

from __future__ import annotations

import json
import os
import re
import resource
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from mlsys_grading.gpu.devices import DeviceError, DeviceUsage, GpuDevice
from mlsys_grading.hub import devices as module
from mlsys_grading.hub.devices import Devices, kind_of
from tests.grading.test_gpu import Nvml, nvml  # noqa: F401 - a fixture

MIG = "NVIDIA H100 80GB HBM3 MIG 1g.10gb"
GPUS = [GpuDevice(f"GPU-{n}", "NVIDIA H100 80GB HBM3", n, 80 << 30) for n in range(2)]
SLICES = [GpuDevice(f"MIG-{n}", MIG, 2, 10 << 30, (10 * n + 1, 10 * n + 2)) for n in range(3)]
IDLE = DeviceUsage((), 500 << 20)


class Machine:
    """A stand-in for NVIDIA's library."""

    def __init__(self, *devices: GpuDevice) -> None:
        self.devices = devices
        self.now = dict.fromkeys((device.uuid for device in devices), IDLE)

    def hub(self, state: Path) -> Devices:
        return Devices(state, lambda: self.devices, lambda device: self.now[device.uuid])


@pytest.fixture
def machine() -> Machine:
    return Machine(*GPUS, *SLICES)


@contextmanager
def server() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(["sleep", "600"]) as process:
        try:
            yield process
        finally:
            process.kill()


def uuid(given: dict[str, str]) -> str:
    assert set(given) == {"CUDA_VISIBLE_DEVICES"}
    return given["CUDA_VISIBLE_DEVICES"]


def test_third_person_reads_who_has_the_devices(machine: Machine, tmp_path: Path) -> None:
    hub = machine.hub(tmp_path)
    assert {uuid(hub.lease(name, "gpu")) for name in ("ada", "bob")} == {"GPU-0", "GPU-1"}
    with pytest.raises(DeviceError) as refused:
        hub.lease("cleo", "gpu")
    line = str(refused.value)
    assert re.search(r"no gpu is free: ada has one since \d\d:\d\d; bob has one since \d\d:\d\d\. ", line)
    assert "\n" not in line
    hub.release("ada")
    assert uuid(hub.lease("cleo", "gpu")) == "GPU-0"


def test_slices_are_devices_of_their_own_kind(machine: Machine, tmp_path: Path) -> None:
    hub = machine.hub(tmp_path)
    given = [uuid(hub.lease(f"s{n}", "mig-1g.10gb")) for n in range(3)]
    assert sorted(given) == ["MIG-0", "MIG-1", "MIG-2"]
    with pytest.raises(DeviceError, match=r"no mig-1g.10gb is free: s0 has one"):
        hub.lease("s3", "mig-1g.10gb")
    with pytest.raises(DeviceError, match=r"this machine has no mig-3g.40gb; "):
        hub.lease("s3", "mig-3g.40gb")
    assert uuid(hub.lease("s3", "gpu")).startswith("GPU-")


def test_kinds_as_the_device_plugin_names_them() -> None:
    assert kind_of(GpuDevice("MIG-1", "NVIDIA A100-SXM4-40GB MIG 1g.5gb+me", 0, 5 << 30, (1, 2))) == "mig-1g.5gb.me"


@pytest.mark.usefixtures("nvml")
def test_devices_are_those_that_nvidias_library_lists(tmp_path: Path) -> None:
    hub = Devices(tmp_path)
    assert [uuid(hub.lease(name, "gpu")) for name in ("ada", "bob")] == ["GPU-10", "GPU-30"]
    assert [uuid(hub.lease(name, "mig-3g.40gb")) for name in ("cleo", "dan")] == ["MIG-a", "MIG-b"]


def test_lease_of_no_device_ends_the_earlier_lease(machine: Machine, tmp_path: Path) -> None:
    hub = machine.hub(tmp_path)
    hub.lease("ada", "gpu")
    assert hub.lease("ada", "") == {"CUDA_VISIBLE_DEVICES": ""}
    assert hub.held() == {}
    hub.lease("ada", "gpu")
    assert uuid(hub.lease("ada", "mig-1g.10gb")).startswith("MIG-")
    assert len(hub.held()) == 1


def test_no_driver_is_needed_without_a_device(tmp_path: Path) -> None:
    def broken() -> list[GpuDevice]:
        raise DeviceError("NVIDIA's driver does not answer")

    assert Devices(tmp_path, broken).lease("ada", "") == {"CUDA_VISIBLE_DEVICES": ""}
    with pytest.raises(DeviceError, match="does not answer"):
        Devices(tmp_path, broken).lease("ada", "gpu")


def test_a_restarted_hub_knows_the_leases(machine: Machine, tmp_path: Path) -> None:
    with server() as process:
        before = machine.hub(tmp_path)
        had = uuid(before.lease("ada", "gpu"))
        before.started("ada", process.pid)
        after = machine.hub(tmp_path)
        assert {name: lease.owner for name, lease in after.held().items()} == {had: "ada"}
        assert uuid(after.lease("bob", "gpu")) != had
        assert uuid(after.lease("ada", "gpu")) == had
        after.release("ada")
        assert uuid(after.lease("cleo", "gpu")) == had


def test_a_lease_ends_with_its_server(machine: Machine, tmp_path: Path) -> None:
    hub = machine.hub(tmp_path)
    for name in ("ada", "bob"):
        with server() as process:
            hub.lease(name, "gpu")
            hub.started(name, process.pid)
            assert len(hub.held()) == 1
    assert hub.held() == {}
    assert {uuid(hub.lease(name, "gpu")) for name in ("cleo", "dan")} == {"GPU-0", "GPU-1"}


def test_another_process_with_the_number_of_a_dead_server_is_not_that_server(machine: Machine, tmp_path: Path) -> None:
    hub = machine.hub(tmp_path)
    hub.lease("ada", "gpu")
    with server() as process:
        hub.started("ada", process.pid)
        kept = tmp_path / "devices.json"
        plain = json.loads(kept.read_text())
        plain["GPU-0"]["born"] -= 1
        kept.write_text(json.dumps(plain))
        assert hub.held() == {}


def test_a_server_that_never_started_keeps_its_device_for_as_long_as_a_start_takes(
    machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub = machine.hub(tmp_path)
    now, clock = module.time.monotonic(), module.time.time()
    hub.lease("ada", "gpu")
    for days in (2, -2):
        monkeypatch.setattr(module.time, "time", lambda days=days: clock + days * 86400)
        assert len(hub.held()) == 1, "somebody has set the clock"
    monkeypatch.setattr(module.time, "monotonic", lambda: now + 599)
    assert len(hub.held()) == 1
    monkeypatch.setattr(module.time, "monotonic", lambda: now + 601)
    assert hub.held() == {}
    monkeypatch.setattr(module.time, "monotonic", lambda: 10.0)
    assert hub.held() == {}, "the machine has started anew"


@pytest.mark.parametrize(
    ("left", "told"),
    [
        (DeviceUsage((), 3 << 30), "2572 MiB left by ada"),  # 3 GiB less the 500 MiB of before
        (DeviceUsage((os.getpid(),), 500 << 20), f"process {os.getpid()} left by ada"),
    ],
    ids=["memory", "process"],
)
def test_device_with_remains_is_not_given_out(machine: Machine, tmp_path: Path, left: DeviceUsage, told: str) -> None:
    hub = machine.hub(tmp_path)
    hub.lease("ada", "gpu")
    machine.now["GPU-0"] = left
    assert hub.left() == ()
    hub.release("ada")
    assert [told in line for line in hub.left()] == [True]
    if left.processes:
        assert f"of user id {os.getuid()}" in hub.left()[0]
    assert uuid(hub.lease("bob", "gpu")) == "GPU-1"
    with pytest.raises(DeviceError, match=f"GPU-0 has .*{told}.*; bob has one since"):
        machine.hub(tmp_path).lease("cleo", "gpu")
    machine.now["GPU-0"] = DeviceUsage((), 530 << 20)  # an idle device's use varies
    assert hub.left() == ()
    assert uuid(hub.lease("cleo", "gpu")) == "GPU-0"


def test_device_used_by_a_stranger_is_passed_over(machine: Machine, tmp_path: Path) -> None:
    machine.now["GPU-0"] = DeviceUsage((1,), 9 << 30)
    hub = machine.hub(tmp_path)
    assert uuid(hub.lease("ada", "gpu")) == "GPU-1"
    with pytest.raises(DeviceError, match="GPU-0 is used by process 1 of user id 0"):
        hub.lease("bob", "gpu")


def test_files_of_other_peoples_devices_are_hidden_and_common_ones_are_not(
    machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub = machine.hub(tmp_path)
    assert hub.hidden_from("ada") == ()  # none of them is on this machine
    monkeypatch.setattr(module.os.path, "exists", lambda path: True)
    hub.lease("ada", "gpu")
    hub.lease("bob", "mig-1g.10gb")
    caps = {n: [f"/dev/nvidia-caps/nvidia-cap{10 * n + k}" for k in (1, 2)] for n in range(3)}
    assert set(hub.hidden_from("ada")) == {"/dev/nvidia1", "/dev/nvidia2", *caps[0], *caps[1], *caps[2]}
    assert set(hub.hidden_from("bob")) == {"/dev/nvidia0", "/dev/nvidia1", *caps[1], *caps[2]}
    assert {"/dev/nvidia0", "/dev/nvidia1", "/dev/nvidia2"} < set(hub.hidden_from("cleo"))


@pytest.mark.parametrize("text", ["", "{", "[]", '{"GPU-0": 1}', '{"GPU-0": {"owner": "ada"}}', '{"GPU-0": {"no": 1}}'])
def test_malformed_file_is_one_line(machine: Machine, tmp_path: Path, text: str) -> None:
    (tmp_path / "devices.json").write_text(text)
    with pytest.raises(DeviceError, match=r"not a list of leases.*remove it") as raised:
        machine.hub(tmp_path).lease("ada", "gpu")
    assert "\n" not in str(raised.value)


def test_hubs_at_once_never_give_one_device_twice(machine: Machine, tmp_path: Path) -> None:
    """Lease from several processes at once, as two Hubs do by mistake, or a command beside a Hub."""
    many = Machine(*(GpuDevice(f"GPU-{n}", "H100", n, 1 << 30) for n in range(12)))
    children = []
    for at in range(4):
        pid = os.fork()
        if pid == 0:
            try:
                hub = many.hub(tmp_path)
                for number in range(3):
                    hub.lease(f"user{at}-{number}", "gpu")
                os._exit(0)
            finally:
                os._exit(1)
        children.append(pid)
    assert [os.waitpid(pid, 0)[1] for pid in children] == [0] * 4
    owners = [lease.owner for lease in many.hub(tmp_path).held().values()]
    assert len(owners) == len(set(owners)) == 12


OWNERS = st.sampled_from(["ada", "bob", "cleo", "dan"])
KINDS = st.sampled_from(["gpu", "mig-1g.10gb", ""])
KILLED_AT = st.sampled_from(["before the file", "half of it", "before the rename", "after the rename"])


class Leases(RuleBasedStateMachine):
    """Model: a dictionary with the one device of each owner who has asked for one and has not left."""

    @initialize()
    def begin(self) -> None:
        self.state = Path(tempfile.mkdtemp(prefix="labkit-leases-"))
        self.machine = Machine(*GPUS, *SLICES[:2])
        self.hub = self.machine.hub(self.state)
        self.expected: dict[str, str] = {}
        self.servers: dict[str, subprocess.Popen[bytes]] = {}
        self.left: set[str] = set()

    def teardown(self) -> None:
        for process in getattr(self, "servers", {}).values():
            process.kill()
            process.wait()
        if hasattr(self, "state"):
            shutil.rmtree(self.state)

    def free(self, kind: str) -> set[str]:
        taken = {*self.expected.values(), *self.left}
        return {each.uuid for each in self.machine.devices if kind_of(each) == kind} - taken

    def forget(self, owner: str) -> None:
        self.expected.pop(owner, None)
        if process := self.servers.pop(owner, None):
            process.kill()
            process.wait()

    @rule(owner=OWNERS, kind=KINDS)
    def lease(self, owner: str, kind: str) -> None:
        kept = self.expected.get(owner, "")
        if kind and kept.startswith("GPU" if kind == "gpu" else "MIG"):
            assert uuid(self.hub.lease(owner, kind)) == kept
            return
        self.forget(owner)
        if not kind:
            assert uuid(self.hub.lease(owner, kind)) == ""
        elif free := self.free(kind):
            self.expected[owner] = uuid(self.hub.lease(owner, kind))
            assert self.expected[owner] in free
        else:
            with pytest.raises(DeviceError, match="is free"):
                self.hub.lease(owner, kind)

    @precondition(lambda self: self.expected)
    @rule(data=st.data())
    def start(self, data: st.DataObject) -> None:
        owner = data.draw(st.sampled_from(sorted(self.expected)))
        if owner not in self.servers:
            self.servers[owner] = subprocess.Popen(["sleep", "600"])
        self.hub.started(owner, self.servers[owner].pid)

    @rule(owner=OWNERS)
    def release(self, owner: str) -> None:
        self.forget(owner)
        self.hub.release(owner)

    @precondition(lambda self: self.servers)
    @rule(data=st.data())
    def die(self, data: st.DataObject) -> None:
        """Kill a server without notifying the Hub."""
        owner = data.draw(st.sampled_from(sorted(self.servers)))
        if owner in self.expected and self.started(owner):
            self.forget(owner)

    def started(self, owner: str) -> bool:
        """Return True if the lease has this server's process; a renewed lease waits for the next server."""
        return self.hub.held()[self.expected[owner]].pid == self.servers[owner].pid

    @rule()
    def restart(self) -> None:
        self.hub = self.machine.hub(self.state)

    @rule(data=st.data())
    def leave_something(self, data: st.DataObject) -> None:
        at = data.draw(st.sampled_from([each.uuid for each in self.machine.devices]))
        if at in self.left:
            self.left.remove(at)
            self.machine.now[at] = IDLE
        elif at not in self.expected.values():
            self.left.add(at)
            self.machine.now[at] = DeviceUsage((1,), 9 << 30)

    @rule(owner=OWNERS, kind=KINDS, moment=KILLED_AT)
    def killed_while_writing(self, owner: str, kind: str, moment: str) -> None:
        """Kill a process in the middle of a lease; the lease must be there entirely, or not at all."""
        child = os.fork()
        if child == 0:
            try:
                _die_at(moment)
                self.machine.hub(self.state).lease(owner, kind)
            finally:
                os._exit(0)  # refused, or nothing had to be written
        os.waitpid(child, 0)
        self.hub = self.machine.hub(self.state)
        now = {lease.owner: name for name, lease in self.hub.held().items()}
        others = {name: at for name, at in self.expected.items() if name != owner}
        assert {name: at for name, at in now.items() if name != owner} == others
        if now.get(owner) != self.expected.get(owner):
            assert now.get(owner, "") in {"", *self.free(kind)}
            self.forget(owner)
            self.expected |= {owner: now[owner]} if owner in now else {}

    @invariant()
    def each_device_has_one_owner_and_none_is_lost(self) -> None:
        if not hasattr(self, "state"):
            return
        held = self.hub.held()
        assert {lease.owner: name for name, lease in held.items()} == self.expected
        assert len(set(self.expected.values())) == len(self.expected)


def _die_at(moment: str) -> None:
    """Arrange that this child process is killed at a moment of its next atomic write."""

    def die(*_: object) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    replace = os.replace

    def after(*given: str) -> None:
        replace(*given)
        die()

    if moment == "before the file":
        module.files.write_atomic = die
    elif moment == "half of it":  # the kernel ends a process at the byte that is one too many
        signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_FSIZE, (40, 40))
    else:
        module.files.os.replace = die if moment == "before the rename" else after


TestLeases = Leases.TestCase
TestLeases.settings = settings(max_examples=25, stateful_step_count=20, deadline=None)
