"""Jumps of the machine's clock by days, as when a virtual machine goes on: no server ends, and no timer stands still.

A library that is loaded before the C library's adds a jump to the clock of the Hub, its proxy and its servers.
"""

from __future__ import annotations

import shutil
import struct
import subprocess
from collections.abc import Iterator

import psutil
import pytest

from mlsys_grading.hub.command import _make_sources
from tests.hub.hub_process import PATIENCE_SECONDS, ROOT, Hub, Person, needs_hub, until

COMPILER = shutil.which("gcc") or shutil.which("cc")
pytestmark = [
    needs_hub,
    pytest.mark.skipif(COMPILER is None, reason="needs a C compiler"),
    pytest.mark.xdist_group("own-hub"),
    pytest.mark.timeout(900),
]
LAB = "lab00_your_machine"
DAYS = 86400
CLOCK = r"""
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static const volatile long *jump;  // in seconds

__attribute__((constructor)) static void find_jump(void) {
    const char *path = getenv("CLOCK_JUMP");
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    void *found = file < 0 ? MAP_FAILED : mmap(0, sizeof *jump, PROT_READ, MAP_SHARED, file, 0);
    if (file >= 0) close(file);
    if (found != MAP_FAILED) jump = found;
}
int clock_gettime(clockid_t clock, struct timespec *now) {
    int failed = syscall(SYS_clock_gettime, clock, now);
    if (!failed && jump && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) now->tv_sec += *jump;
    return failed;
}
int gettimeofday(struct timeval *restrict now, void *restrict zone) {
    struct timespec exact;
    (void)zone;
    clock_gettime(CLOCK_REALTIME, &exact);
    now->tv_sec = exact.tv_sec;
    now->tv_usec = exact.tv_nsec / 1000;
    return 0;
}
time_t time(time_t *kept) {
    struct timespec exact;
    clock_gettime(CLOCK_REALTIME, &exact);
    if (kept) *kept = exact.tv_sec;
    return exact.tv_sec;
}
"""
# Each server looks for idle kernels every second, and says so. The library is in a folder that every server sees.
CONFIG = """
c = get_config()
c.LabSpawner.env_keep = ["PATH", "LANG", "LC_ALL", "LD_LIBRARY_PATH", "VIRTUAL_ENV", "LD_PRELOAD", "CLOCK_JUMP"]
"""
SERVER = """
import tornado.ioloop
class Often(tornado.ioloop.PeriodicCallback):
    def __init__(self, callback, *_):
        super().__init__(callback, 1000)
tornado.ioloop.PeriodicCallback = Often
c.Application.log_level = "DEBUG"
"""
IDLE = "[idle]\nminutes = 60\ncheck_minutes = 0.01\nmax_hours = 1\n"


@pytest.fixture
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hub]:
    folder = tmp_path_factory.mktemp("clock")
    shutil.copytree(ROOT / "solutions" / LAB, folder / "solutions" / LAB)
    _make_sources(folder)
    made = Hub(folder, more=IDLE, config=CONFIG)
    library, jump = made.folder / "singleuser" / "clock.so", made.folder / "singleuser" / "jump"
    (folder / "clock.c").write_text(CLOCK)
    subprocess.run([str(COMPILER), "-shared", "-fPIC", "-o", library, folder / "clock.c"], check=True)
    jump.write_bytes(bytes(8))
    made.command = ["env", f"LD_PRELOAD={library}", f"CLOCK_JUMP={jump}", *made.command]
    with open(folder / "singleuser" / "jupyter_server_config.py", "a") as settings:
        settings.write(SERVER)
    with made:
        yield made


def set_clock(hub: Hub, seconds: int) -> None:
    """Set the clock of the Hub and its servers so many seconds ahead of the machine's."""
    with open(hub.folder / "singleuser" / "jump", "r+b") as file:  # never truncated: they have it in their memory
        file.write(struct.pack("l", seconds))


def test_jumps_of_the_clock_end_no_server_and_stop_no_timer(hub: Hub) -> None:
    ada, bob = hub.log_in("ada"), hub.log_in("bob")
    for person in (ada, bob):
        person.start_server()
    kernel = ada.request("POST", "api/kernels", json={"name": "python3"}).json()["id"]
    ada.run_in(kernel, "import time; kept = 6 * 7; began = time.time()")
    servers = {process.pid for process in hub.servers()}
    for count, seconds in enumerate((0, 2 * DAYS, -2 * DAYS)):
        set_clock(hub, seconds)
        told = ada_again(ada).run_in(kernel, f"print(kept, abs(time.time() - began - {seconds}) < {DAYS})")
        assert told.split() == ["42", "True"], "the clock of the kernel is set, and its memory is there"
        looks(ada, "last_activity=")  # at kernels
        looks(bob, "No activity for")  # at the server, which has no kernel
        assert {process.pid for process in hub.servers()} == servers
        submit(ada)
        assert len(list((hub.state / "exchange/mlsys/inbound").iterdir())) == count + 1
    proxy = psutil.Process(int((hub.state / "proxy.pid").read_text()))
    proxy.kill()
    proxy.wait(PATIENCE_SECONDS)
    until("the Hub has started another proxy", hub._is_up)
    assert ada_again(ada).run_in(kernel, "print(kept)").strip() == "42"
    assert hub.log_in("bob").is_logged_in


def ada_again(ada: Person) -> Person:
    """Load the page again: the token of its cookie ends after twelve hours."""
    until("a page", lambda: ada.session.get(f"{ada.hub.url}/user/ada/lab", timeout=PATIENCE_SECONDS).status_code == 200)
    return ada


def looks(person: Person, line: str) -> None:
    """Wait until the server has looked for idleness three more times."""
    before = person.log.count(line)
    until(f"three lines {line!r}", lambda: person.log.count(line) >= before + 3 or not person.server.get("ready"))
    assert person.server.get("ready"), person.log[-2000:]


def submit(person: Person) -> None:
    data = {"assignment_id": LAB, "course_id": "mlsys"}
    address = f"{person.hub.url}/user/{person.name}/assignments/submit"
    headers = {"X-XSRFToken": person.token(f"/user/{person.name}/")}
    told = person.session.post(address, data=data, headers=headers, timeout=PATIENCE_SECONDS).json()
    assert told["success"], told
