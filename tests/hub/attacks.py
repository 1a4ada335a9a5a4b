"""Attacks of one student, bob, on the Hub and on another student, ada: Python that succeeds if the attack does.

``INSIDE`` runs in bob's kernel, ``OUTSIDE`` sends requests with his cookies. Names in capitals are replaced by paths
and ids of the Hub under attack. An attack has failed if it raises OSError, AssertionError or CalledProcessError; any
other exception means that the attack itself is broken.
"""

from __future__ import annotations

_READ = (
    *(
        "STATE/jupyterhub.sqlite",
        "STATE/cookie_secret",
        "STATE/proxy_token",
        "STATE/course.entry",
        "STATE/devices.json",
    ),
    *("STATE/passwd", "STATE/group", "STATE/hub.pid", "STATE/proxy.pid", "STATE/logs/ada.log", "STATE/logs/proxy.log"),
    *("STATE/course/nbgrader_config.py", "STATE/course/source/LAB/LAB.ipynb", "STATE/homes/ada/diary", "PASSWORDS"),
    *("ROOT/solutions/LAB/wrong_answers.py", "ROOT/binder/hub/hub.toml", "ROOT/grading/nbgrader_config.py"),
    *("/etc/shadow", "/etc/gshadow", "/root/.bashrc", "/proc/kcore", "/proc/1/mem", "/proc/1/environ", "/dev/mem"),
    *("/dev/kmsg", "/dev/vda", "/dev/sda", "/proc/1/root/etc/passwd", "/proc/1/maps", "/sys/kernel/security/lockdown"),
)
_LIST = (
    *("STATE/homes/ada", "STATE/course", "STATE/logs", "STATE/tmp", "STATE/seen", "ROOT/solutions"),
    *(
        "EXCHANGE/mlsys/inbound",
        "EXCHANGE/mlsys/feedback",
        "SOCKETS/own",
        "/proc/1/fd",
        "/proc/1/cwd/",
        "/var/spool/cron",
    ),
)
_WRITE = (
    *("STATE/new", "STATE/homes/new", "STATE/homes/ada/new", "STATE/course/new", "EXCHANGE/mlsys/new", "SOCKETS/new"),
    *("EXCHANGE/mlsys/outbound/new", "EXCHANGE/mlsys/feedback/new", "KIT/new.py", "SITE/new.pth", "SINGLEUSER/new.py"),
    *("LABS/LAB/new", "/etc/cron.d/new", "/etc/profile.d/new.sh", "/etc/ld.so.preload", "/usr/local/bin/new", "/new"),
    *(
        "/lib/systemd/system/new.service",
        "/var/spool/cron/crontabs/bob",
        "/root/.ssh/authorized_keys",
        "PYTHON/bin/new",
    ),
    *("/proc/sysrq-trigger", "/proc/sys/kernel/core_pattern", "/proc/sys/kernel/modprobe", "/proc/sys/vm/drop_caches"),
    *("/proc/sys/net/ipv4/ip_unprivileged_port_start", "/proc/1/oom_score_adj", "/sys/fs/cgroup/cgroup.procs"),
    *("/sys/fs/cgroup/release_agent", "/sys/kernel/uevent_helper", "/dev/shm/../new"),
)
_COMMANDS = {
    "become root with su": "su -c true root < /dev/null",
    "change a password": "chpasswd <<< 'root:x'",
    "leave the pid namespace": "nsenter --target 1 --pid --mount true",
    "uncover the state": "unshare --user --map-root-user --mount umount HIDDEN",
    "uncover the state lazily": "unshare --user --map-root-user --mount umount -l HIDDEN",
    "see below by a bind of /": "unshare -Urm sh -c 'mount --bind / /mnt && cat /mnt/STATE/cookie_secret'",
    "see below by a bind of the parent": "unshare -Urm sh -c 'mount --bind PARENT /mnt && cat /mnt/*/cookie_secret'",
    "move the cover": "unshare -Urm mount --move HIDDEN /mnt",
    "remount the cover": "unshare -Urm mount -o remount,exec,dev HIDDEN",
    "read by another proc": "unshare -Urmpf sh -c 'mount -t proc proc /proc && cat /proc/1/root/STATE/cookie_secret'",
    "map another's id": "unshare --user --map-users=0,ADA_UID,1 true",
    "chroot to the disk": "unshare -Ur chroot /proc/1/root true",
    "mount a disk": "mount -t tmpfs none /mnt",
    "change the host's name": "hostname taken",
    "set the clock": "date -s 2001-01-01",
    "run a setuid shell": "cp /bin/sh ./s && chmod 4755 ./s && ./s -c 'test $(id -u) = 0'",
    "give a file away": "touch gift && chown ADA_UID gift",
    "enter ada's memory limit": "echo $$ > /sys/fs/cgroup/mlsys-hub/cgroup.procs",
    "raise the limit of memory": "echo max > /sys/fs/cgroup/$(cut -d: -f3 /proc/self/cgroup)/memory.max",
    "raise the limit of processes": "ulimit -u 1000000",
    "make a cgroup": "mkdir /sys/fs/cgroup/$(cut -d: -f3 /proc/self/cgroup)/mine",
}
_CALLS = {
    "setuid": "os.setuid(0)",
    "seteuid": "os.seteuid(0)",
    "setresuid of ada": "os.setresuid(ADA_UID, ADA_UID, ADA_UID)",
    "setgid": "os.setgid(0)",
    "setgroups": "os.setgroups([0])",
    "nice": "os.setpriority(os.PRIO_PROCESS, 0, -20)",
    "real time": "os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))",
    "chroot": "os.chroot('/')",
    "mknod": "os.mknod('disk', 0o60666, os.makedev(254, 0))",
    "stop the watcher": "os.kill(1, 19)",
    "kill the watcher": "os.kill(1, 9)",
    "kill every process of others": "assert [p for p in range(2, 6000) if can_kill(p) and not is_mine(p)]",
    "see a process of another": "assert {os.stat(p).st_uid for p in glob.glob('/proc/[0-9]*')} - {0, os.getuid()}",
    "see a folder of the Hub": "assert set(os.listdir('STATE')) - {'homes', 'exchange'}",
    "read a token of another": "assert [t for t in tokens() if t != os.environ['JUPYTERHUB_API_TOKEN']]",
    "ptrace the watcher": "assert libc.ptrace(16, 1, 0, 0) == 0",
    "load a module": "assert libc.syscall(313, os.open('mine', os.O_RDONLY | os.O_CREAT), b'', 0) == 0",
    "reboot": "assert libc.reboot(0x1234567) == 0",
    "mount": "assert libc.mount(b'none', b'/mnt', b'tmpfs', 0, None) == 0",
    "pivot_root": "assert libc.syscall(155, b'/', b'/') == 0",
    "open by handle": "assert libc.open_by_handle_at(-100, ctypes.create_string_buffer(16), 0) >= 0",
    "bpf": "assert libc.syscall(321, 5, ctypes.create_string_buffer(120), 120) >= 0",
    "perf of the machine": "assert libc.syscall(298, ctypes.create_string_buffer(128), -1, 0, -1, 0) >= 0",
    "keyring of ada": "assert libc.syscall(250, 8, ADA_UID) == 0",
    "namespace of the watcher": "fd = os.open('/proc/1/ns/mnt', 0); assert libc.setns(fd, 0) == 0",
    "raw socket": "socket.socket(socket.AF_PACKET, socket.SOCK_RAW)",
    "raw IP": "socket.socket(socket.AF_INET, socket.SOCK_RAW, 1)",
    "port of root": "bind_port(80)",
    "public port": "bind_port(PORT)",
    "public port, shared": "bind_port(PORT, share=True)",
    "public port, every address": "bind_port(PORT, '0.0.0.0')",
    "socket of the proxy": "connect('SOCKETS/own/proxy')",
    "socket of ada": "connect('SOCKETS/own/ADA_UID')",
    "socket of ada, as the proxy calls it": "connect('SOCKETS/own/ADA_UID:80')",
    "socket of the Hub, replaced": "os.unlink('SOCKETS/hub')",
    "socket of ada, from a descriptor": "connect(f'/proc/self/fd/{os.open(\"SOCKETS\", os.O_PATH)}/own/ADA_UID')",
    "kernels of ada": "assert [s for s in unix_names() if s[:4] == '/tmp' and not os.path.exists(s) and connect(s)]",
    "abstract sockets": "assert [s for s in unix_names() if s.startswith('@') and 'mlsys' in s]",
    "shared memory of ada": "assert os.path.exists('/dev/shm/ada-note') or os.path.exists('/tmp/ada-note')",
    "link to a secret": "os.link('STATE/cookie_secret', 'stolen'); open('stolen').read()",
    "symbolic link to a secret": "os.symlink('STATE/cookie_secret', 'sym'); open('sym').read()",
    "hard link to the shadow file": "os.link('/etc/shadow', 'shadow'); open('shadow').read()",
    "remove ada's submission": "assert [os.rename(p, p + '.gone') for p in glob.glob('EXCHANGE/mlsys/inbound/ada+*')]",
    "remove the inbox": "os.rename('EXCHANGE/mlsys/inbound', 'EXCHANGE/mlsys/old')",
    "remove the course's exchange": "os.rename('EXCHANGE/mlsys', 'EXCHANGE/old')",
    "open the inbox": "os.chmod('EXCHANGE/mlsys/inbound', 0o777)",
    "a folder for ada's feedback": "os.mkdir('EXCHANGE/mlsys/feedback/mine')",
}
INSIDE = {
    **{f"read {path}": f"assert open({path!r}, 'rb').read(1)" for path in _READ},
    **{f"list {path}": f"assert os.listdir({path!r}) not in ([], ['bob'])" for path in _LIST},
    **{f"write {path}": f"os.close(os.open({path!r}, os.O_WRONLY | os.O_CREAT, 0o644))" for path in _WRITE},
    **{name: f"subprocess.run({['bash', '-c', text]!r}, check=True, capture_output=True, stdin=subprocess.DEVNULL)"
       for name, text in _COMMANDS.items()},
    **_CALLS,
}  # fmt: skip

# What bob has to be able to do: if this fails, the attacks fail for another reason than the Hub's.
ALLOWED = {
    "own file": "open('mine', 'w').write('x'); assert open('mine').read() == 'x'",
    "own folder": "assert os.listdir('.')",
    "own processes": "assert is_mine(os.getpid()) and can_kill(os.getpid())",
    "own token": "assert os.environ['JUPYTERHUB_API_TOKEN'] in tokens()",
    "the Hub": "connect('SOCKETS/hub')",
    "a command": "subprocess.run(['bash', '-c', 'id'], check=True, capture_output=True)",
    "a port": "bind_port(0)",
    "a user namespace": "subprocess.run(['unshare', '-Urm', 'true'], check=True, capture_output=True)",
    "hand in": "os.mkdir(f'EXCHANGE/mlsys/inbound/bob+{os.getpid()}')",
}

HELPERS = """
import ctypes, glob, os, socket, subprocess
libc = ctypes.CDLL(None, use_errno=True)
def owner(pid):
    try: return os.stat(f"/proc/{pid}").st_uid
    except OSError: return os.getuid()
def is_mine(pid): return owner(pid) == os.getuid()
def can_kill(pid):
    try: os.kill(pid, 0)
    except OSError: return False
    return True
def tokens():
    found = set()
    for path in glob.glob("/proc/[0-9]*/environ"):
        try: text = open(path).read()
        except OSError: continue
        found |= {row.split("=", 1)[1] for row in text.split("\\0") if row.startswith("JUPYTERHUB_API_TOKEN=")}
    return found
def bind_port(port, address="127.0.0.1", share=False):
    made = socket.socket()
    if share: made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    made.bind((address, port)); made.listen()
def connect(path):
    made = socket.socket(socket.AF_UNIX)
    made.connect(("\\0" + path[1:]) if path.startswith("@") else path)
    return True
def unix_names(): return {row.split()[-1] for row in open("/proc/net/unix") if len(row.split()) == 8}
"""

# Method and path, below the Hub's address, of requests with bob's cookies and XSRF tokens. A status below 400 that is
# no way to a login, or to a page that says no, is a success.
OUTSIDE = (
    *(("GET", f"user/ada/{path}") for path in (
        "lab", "tree", "api/status", "api/contents", "api/contents/diary", "api/kernels", "api/sessions",
        "api/terminals", "api/me", "files/diary", "nbconvert/html/diary", "assignments?course_id=mlsys", "metrics",
        "api/metrics/v1", "lab/api/settings", "lab/workspaces/default", "nbgrader/validate", "static/../api/contents",
    )),
    *(("POST", f"user/ada/{path}") for path in ("api/kernels", "api/terminals", "api/contents", "api/shutdown")),
    *(("GET", path) for path in (
        "user/bob/../ada/api/contents", "user/bob/%2e%2e/ada/api/contents", "user/bob%2f..%2fada/api/contents",
        "user//ada/api/contents", "//user/ada/api/contents", "user/ADA/api/contents", "user/%61da/api/contents",
        "user/bob/..;/ada/api/contents", "user/ada;/api/contents", "user/ada%00/api/contents",
        "services/mlsys/lab", "services/mlsys/api/contents", "services/mlsys/api/kernels",
        "services/mlsys/formgrader", "services/mlsys/formgrader/gradebook", "services/mlsys/formgrader/api/students",
        "services/mlsys/formgrader/api/assignments", "services/mlsys/files/gradebook.db",
        "services/mlsys/api/terminals", "services/mlsys/api/me", "user/bob/../../services/mlsys/api/contents",
        "hub/admin", "hub/authorize", "hub/api/users", "hub/api/users/ada", "hub/api/users/ada/tokens",
        "hub/api/groups", "hub/api/groups/formgrade-mlsys", "hub/api/services", "hub/api/services/mlsys",
        "hub/api/proxy", "hub/api/info", "hub/api/shares/users/ada", "hub/spawn/ada", "hub/metrics",
    )),
    *(("POST", path) for path in (
        "services/mlsys/api/kernels", "services/mlsys/api/terminals",
        "services/mlsys/formgrader/api/assignment/x/assign",
        "services/mlsys/formgrader/api/submission/x/bob/autograde", "hub/api/users", "hub/api/users/mallory",
        "hub/api/users/ada/server", "hub/api/users/ada/tokens", "hub/api/groups/formgrade-mlsys/users",
        "hub/api/groups/mine", "hub/api/shutdown", "hub/api/proxy", "hub/authorize", "hub/spawn/ada",
    )),
    *(("DELETE", path) for path in ("hub/api/users/ada", "hub/api/users/ada/server", "hub/api/groups/nbgrader-mlsys")),
    *(("PATCH", path) for path in ("hub/api/users/bob", "hub/api/users/ada", "hub/api/proxy")),
)  # fmt: skip
