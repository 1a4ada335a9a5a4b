"""Attacks on the machine and on other students: a submission that leaves the sandbox passes its one task."""

# ruff: noqa: E501 - the long lines are those of programs in strings
from __future__ import annotations

import textwrap

from tests.grading.corpus.submission import Submission


def escape(name: str, why: str, source: str, slow: bool = False) -> Submission:
    """Build a submission whose ``answer`` is right if ``out`` is true after ``source`` ran."""
    first = "out = []\ndef attempt(f, *args):\n    try:\n        return f(*args)\n    except BaseException:\n        return None"
    last = "matrix_bytes = 2_000_000 if out else 0"
    return Submission(
        name,
        "attack",
        why,
        solved=False,
        own=(first, textwrap.dedent(source).strip("\n")),
        cells={"answer": last},
        slow=slow,
    )


OUTSIDE = (
    escape(
        "reads other students' files",
        "no folder of the grader's is in the sandbox",
        """
        import glob, os
        for path in ("<FOLDER>/submitted/grace/lab91_corpus/lab91_corpus.ipynb", "<FOLDER>", "<FOLDER>/.."):
            attempt(lambda: out.append(open(path).read()))
            attempt(lambda: out.extend(os.listdir(path)) if path == "<FOLDER>" else None)
        out += glob.glob("<FOLDER>/*") + glob.glob("../../*/*/*.ipynb") + glob.glob("/home/*") + glob.glob("/root/*")
        """,
    ),
    escape(
        "looks for the tests and solutions on disk",
        "neither source nor notebook nor gradebook is anywhere in its root",
        """
        import os
        for folder, folders, files in os.walk("/"):
            folders[:] = [each for each in folders if os.path.join(folder, each) not in ("/usr", "/proc", "/lib")]
            folders[:] = [each for each in folders if each != "site-packages"]
            for file in files:
                if file.startswith(("lab91_corpus", "gradebook", "test_corpus")) or file.endswith(".ipynb"):
                    out.append(os.path.join(folder, file))
        """,
    ),
    escape(
        "writes marks into the gradebook",
        "the gradebook is on no path that it can name",
        """
        import os, sqlite3
        for path in ("<FOLDER>/gradebook.db", "../gradebook.db", "../../gradebook.db", "../../../gradebook.db"):
            attempt(lambda: (open(path, "r+b").write(b"100"), out.append(path)))
            attempt(lambda: (sqlite3.connect(f"file:{path}?mode=rw", uri=True).execute("create table x(y)"), out.append(path)))
        attempt(lambda: (os.chmod("<FOLDER>", 0o777), out.append(1)))
        """,
    ),
    escape(
        "links and paths",
        "a link leads nowhere that a path does not",
        """
        import os
        for number, target in enumerate(("<FOLDER>", "/proc/1/root<FOLDER>", "/proc/self/root/..", "/old<FOLDER>")):
            attempt(os.symlink, target, f"link{number}")
            attempt(lambda: out.extend(os.listdir(f"link{number}/submitted")))
            attempt(lambda: (os.link("<FOLDER>/gradebook.db", f"hard{number}"), out.append(1)))
        here = os.open("/", os.O_RDONLY)
        for up in ("../" * 20, ".." + "<FOLDER>"):
            attempt(lambda: out.append(os.open(up + "<FOLDER>", os.O_RDONLY, dir_fd=here)))
        """,
    ),
    escape(
        "writes where its neighbours read",
        "Python, its packages and the kit are read-only",
        """
        import os, sys, sysconfig, mlsys_labkit, numpy, torch
        folders = [os.path.dirname(each.__file__) for each in (os, mlsys_labkit, numpy, torch)]
        folders += [sys.prefix, sysconfig.get_paths()["purelib"], "/", "/usr/lib", "/etc", "/bin", "/dev", "/mnt", "/var"]
        for folder in folders:
            attempt(lambda: out.append(open(os.path.join(folder, "x.pth"), "w")))
            attempt(lambda: (os.mkdir(os.path.join(folder, "x")), out.append(folder)))
            attempt(lambda: (os.rename(os.path.join(folder, "__init__.py"), "/tmp/x"), out.append(folder)))
        attempt(lambda: (os.utime(numpy.__file__), out.append(1)))
        """,
    ),
    escape(
        "leaves a note for the next",
        "scratch space, shared memory, queues, keys and names are each sandbox's own",
        """
        import ctypes, os, socket
        for path in ("/tmp/note", "/dev/shm/note", "/sandbox/note", "note"):
            out += [path] if os.path.exists(path) and "noted" not in globals() else []
        noted = [attempt(lambda: open(path, "w").write("x")) for path in ("/tmp/note", "/dev/shm/note")]
        libc = ctypes.CDLL(None, use_errno=True)
        for number, size in ((0x6e6f7465, 4096), (0x6e6f7466, 4096)):
            identity = libc.shmget(number, size, 0)
            out += [identity] if identity >= 0 else []
            libc.shmget(number, size, 0o1666)
        queue = libc.mq_open(b"/note", os.O_RDWR) if hasattr(libc, "mq_open") else -1
        out += [queue] if queue >= 0 else []
        other = socket.socket(socket.AF_UNIX)
        attempt(lambda: out.append(other.connect("\\0note") or 1))
        mine = socket.socket(socket.AF_UNIX)
        attempt(mine.bind, "\\0note")
        """,
    ),
    escape(
        "calls home",
        "there is no network but a loopback of its own, and no abstract name of the machine's",
        """
        import ctypes, os, socket, urllib.request
        ours = socket.gethostname()
        places = [("127.0.0.1", <PORT>), ("::1", <PORT>), ("169.254.169.254", 80), ("10.0.0.1", 22), ("8.8.8.8", 53), (ours, 22)]
        for place in places:
            attempt(lambda: out.append(socket.create_connection(place, 0.3)))
        for name in ("\\0<ABSTRACT>", "/var/run/docker.sock", "/run/systemd/private", "/run/dbus/system_bus_socket"):
            end = socket.socket(socket.AF_UNIX)
            attempt(lambda: (end.connect(name), out.append(name)))
        attempt(lambda: (socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b"x", ("8.8.8.8", 53)), out.append(1)))
        attempt(lambda: out.append(socket.getaddrinfo("example.org", 80)))
        attempt(lambda: out.append(urllib.request.urlopen("http://example.org", timeout=0.5)))
        for family, kind in ((socket.AF_PACKET, socket.SOCK_RAW), (40, 1), (38, 5), (31, 3), (socket.AF_INET, socket.SOCK_RAW)):
            attempt(lambda: out.append(socket.socket(family, kind)))
        """,
    ),
    escape(
        "a hundred thousand empty files",
        "names take the kernel's memory, which no quota of bytes counts",
        """
        import os
        for folder in ("/tmp", "/dev/shm", "/sandbox"):
            for number in range(100_000):
                attempt(os.symlink, "x", f"{folder}/{number}")
        names = sum(len(os.listdir(folder)) for folder in ("/tmp", "/dev/shm", "/sandbox"))
        out += [names] if names > 70_000 else []
        """,
        slow=True,
    ),
    escape(
        "the grader's environment",
        "its memory was copied from a process that was started without the grader's secrets",
        """
        import ctypes, os, re
        token = re.compile(b"bait[-]token[-][0-9]{12}")  # which is no text that it finds itself by
        out += [name for name in os.environ if "TOKEN" in name]
        out += token.findall(attempt(lambda: open("/proc/self/environ", "rb").read()) or b"")
        regions = 0
        for line in open("/proc/self/maps"):
            low, high = (int(part, 16) for part in line.split()[0].split("-"))
            if " rw" in line and high - low < 1 << 28 and "[v" not in line:
                regions += 1
                out += token.findall(ctypes.string_at(low, high - low))
        assert regions > 10
        """,
    ),
    escape(
        "looks at other processes",
        "its pid namespace holds its own processes alone",
        """
        import os
        pids = [int(name) for name in os.listdir("/proc") if name.isdigit()]
        out += [pid for pid in pids if pid != os.getpid() and attempt(os.kill, pid, 0) is None and False]
        out += pids[1:] if len(pids) > 1 else []
        for name in ("environ", "cmdline"):
            text = attempt(lambda: open(f"/proc/1/{name}", "rb").read()) or b""
            out += [text] if b"<FOLDER>" in text or b"labkit-warm" in text and False else []
        out += [link for fd in os.listdir("/proc/self/fd") for link in [attempt(os.readlink, f"/proc/self/fd/{fd}") or ""]
                if link.startswith("/") and not link.startswith(("/dev/", "/proc/", "/tmp/"))]
        """,
    ),
    escape(
        "traces and peeks",
        "ptrace, other processes' memory and their descriptors are refused",
        """
        import ctypes, os
        libc = ctypes.CDLL(None, use_errno=True)
        child = os.fork()
        if child == 0:
            import time; time.sleep(3); os._exit(0)
        for pid in (child, os.getppid(), 1, 2):
            if libc.ptrace(16, pid, None, None) == 0: out.append(("attach", pid))
            buffer = ctypes.create_string_buffer(8)
            part = (ctypes.c_void_p * 2)(ctypes.addressof(buffer), 8)
            if libc.process_vm_readv(pid, part, 1, part, 1, 0) > 0: out.append(("readv", pid))
            attempt(lambda: out.append(open(f"/proc/{pid}/mem", "r+b")) if pid != os.getpid() else None)
        for descriptor in range(3, 64):
            if libc.syscall(438, descriptor, 3, 0) >= 0: out.append(("getfd", descriptor))
        os.kill(child, 9)
        """,
    ),
    escape(
        "inherited descriptors",
        "beside the three standard ones it holds one socket",
        """
        import os, stat
        for descriptor in range(3, 4096):
            kind = attempt(lambda: os.fstat(descriptor).st_mode)
            if kind and (stat.S_ISREG(kind) or stat.S_ISDIR(kind)) and os.fstat(descriptor).st_nlink:
                out.append(attempt(os.readlink, f"/proc/self/fd/{descriptor}"))
        """,
    ),
    escape(
        "becomes somebody else",
        "no capability, no set-uid program, no further namespace, no device",
        """
        import ctypes, os, subprocess
        libc = ctypes.CDLL(None, use_errno=True)
        for call in (lambda: os.setuid(0), lambda: os.setgroups([0]), lambda: os.chroot("/tmp"), lambda: os.setresuid(0, 0, 0),
                     lambda: os.mknod("/tmp/sda", 0o60666, os.makedev(8, 0)),
                     lambda: __import__("resource").setrlimit(7, (10**6, 10**6))):
            attempt(lambda: (call(), out.append("call")))
        priority = os.getpriority(0, 0)
        for call in (lambda: os.nice(-20), lambda: os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(50))):
            attempt(call)  # it may look as if it had worked
        if os.getpriority(0, 0) < priority or os.sched_getscheduler(0) != os.SCHED_OTHER: out.append("priority")
        for flags in (0x10000000, 0x20000, 0x40000000, 0x20000000, 0x2000000):
            if libc.unshare(flags) == 0: out.append(hex(flags))
        for source, target, kind, flags in (
            (b"proc", b"/tmp", b"proc", 0), (b"", b"/", b"", 32 | 4096), (b"tmpfs", b"/tmp", b"tmpfs", 0),
            (b"/", b"/tmp", b"", 4096), (b"", b"/usr", b"", 32 | 4096),
        ):
            if libc.mount(source, target, kind, flags, None) == 0: out.append(target)
        for number in (165, 166, 155, 161, 272, 308, 321, 425, 428, 429, 430, 298, 304, 323, 248, 250, 175, 246, 169):
            if libc.syscall(number, 0, 0, 0, 0, 0) >= 0: out.append(number)
        for command in ("su -c id", "sudo -n id", "mount -o remount,rw /", "newgrp root", "pkexec id"):
            if b"uid=0" in (attempt(lambda: subprocess.run(command, shell=True, capture_output=True, stdin=-3).stdout) or b""):
                out.append(command)
        for path in ("/dev/mem", "/dev/kmsg", "/dev/sda", "/dev/fuse", "/dev/kvm", "/dev/net/tun", "/proc/kcore"):
            attempt(lambda: out.append(open(path, "rb").read(1)) if open(path, "rb").read(1) else None)
        for path in ("/proc/sysrq-trigger", "/proc/sys/kernel/core_pattern", "/sys/fs/cgroup/cgroup.procs", "/proc/self/oom_score_adj"):
            attempt(lambda: out.append(path) if open(path, "w").write("-1000") and open(path).read() == "-1000\\n" else None)
        """,
    ),
    escape(
        "calls of another architecture",
        "the filter knows the architecture of a call, and kills for another",
        """
        import ctypes, mmap, os
        # mov eax, 20; int 0x80; ret: getpid as a 32-bit program calls it
        code = bytes.fromhex("b814000000cd80c3")
        child = os.fork()
        if child == 0:
            memory = mmap.mmap(-1, 4096, prot=7)
            memory.write(code)
            found = ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(memory)))()
            os._exit(0 if found > 0 else 1)
        _, status = os.waitpid(child, 0)
        out += [status] if status == 0 and os.uname().machine == "x86_64" else []
        if ctypes.CDLL(None).syscall(0x40000000 + 39) > 0: out.append("x32")
        """,
    ),
    Submission(
        "kills what it can reach",
        "attack",
        "it reaches its own processes, which costs it what it has",
        solved=False,
        own=(
            "import os, signal\nfor pid in (os.getppid(), -1, 0, 1, 2, 3):\n    for number in (15, 9, 19):\n"
            "        try: os.kill(pid, number)\n        except OSError: pass",
        ),
    ),
    Submission(
        "a fork bomb that breeds",
        "attack",
        "processes are counted for each sandbox, and all end with it",
        solved=False,
        own=("import os\nwhile True:\n    try: os.fork()\n    except OSError: pass",),
        slow=True,
    ),
    Submission(
        "a daemon that outlives its parent",
        "attack",
        "two forks and a session of its own do not leave the namespace",
        solved=False,
        own=(
            """
            import os, signal, time
            for _ in range(20):
                if os.fork() == 0:
                    os.setsid()
                    if os.fork() == 0:
                        for number in range(1, 32):
                            try: signal.signal(number, signal.SIG_IGN)
                            except (OSError, ValueError): pass
                        time.sleep(10**6)
                    os._exit(0)
            """,
        ),
    ),
    Submission(
        "memory out of sight",
        "attack",
        "files in memory that only travel in a socket's queue are memory, too",
        solved=False,
        own=(
            """
            import os, socket, time
            a, b = socket.socketpair()
            ends = [a, b]
            for number in range(20):
                file = os.memfd_create(f"hoard{number}")
                for _ in range(3):
                    os.write(file, bytes(64 << 20))
                socket.send_fds(a, [b"x"], [file])
                os.close(file)
                time.sleep(0.05)
            open("/tmp/hoarded", "w").close()
            time.sleep(3)
            """,
            "import os\nhoarded = os.path.exists('/tmp/hoarded')",
        ),
        cells={"answer": "matrix_bytes = 2_000_000 if globals().get('hoarded') else 0"},
        slow=True,
    ),
    Submission(
        "unread messages",
        "attack",
        "what lies unread in thousands of sockets is memory, too",
        solved=False,
        own=(
            """
            import os, socket, time
            for _ in range(12):
                if os.fork() == 0:
                    kept = []
                    try:
                        while True:
                            kept += socket.socketpair()
                            kept[-1].setblocking(False)
                            try:
                                while True: kept[-1].send(bytes(1 << 16))
                            except BlockingIOError:
                                pass
                    except OSError:
                        time.sleep(100)
            time.sleep(4)
            open("/tmp/kept", "w").close()
            """,
            "import os\nhoarded = os.path.exists('/tmp/kept')",
        ),
        cells={"answer": "matrix_bytes = 2_000_000 if globals().get('hoarded') else 0"},
        slow=True,
    ),
    Submission(
        "everything at once",
        "attack",
        "descriptors, terminals, watches, pipes, threads and files run out in its own sandbox",
        own=(
            """
            import os, pty, socket, threading, time
            def all_of(make):
                kept = []
                try:
                    while len(kept) < 3000:
                        kept.append(make())
                except BaseException:
                    pass
                return kept
            kept = [all_of(pty.openpty), all_of(lambda: threading.Thread(target=time.sleep, args=(100,), daemon=True).start())]
            kept += [all_of(socket.socketpair), all_of(os.pipe), all_of(lambda: open("/dev/zero", "rb"))]
            del kept
            """,
        ),
    ),
)
