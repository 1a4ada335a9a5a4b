"""A seccomp filter: system calls that no lab needs and that reach past a namespace are refused.

A list of refusals and not of permissions: torch, compilers and CUDA's driver use too many calls to list, and the
namespaces already confine them. Refused are what would

- make or enter namespaces, or make mounts, by any of the calls that do;
- look into or act on other processes (ptrace, process_vm_*, kcmp, pidfd_getfd);
- hold memory that no limit counts (System V's memory, queues and semaphores, pages lent to pipes, larger pipes, rules
  of Landlock), or use up what all of a machine share (contexts of asynchronous I/O);
- signal other sandboxes through what all of them share: files that all read (watches, leases, locks, hints, what a file
  system has in memory of them, pages in memory and on which node), and the kernel's counts of the machine's memory,
  processes and sockets (huge pages, numbers of pidfds and cookies). Calls that programs use as a courtesy (locks,
  advice on files) report success and do nothing: nobody shares a file with a sandbox. What is left is in ``counters``;
- cut the cord to the keeper that ends the tree, or
- talk to large and rarely tried parts of the kernel: bpf, perf, io_uring, keyrings, userfaultfd, watches of whole file
  systems, and sockets but Unix's, TCP and UDP on a loopback, and the list of that loopback's interfaces: other families
  and protocols, some of which no network namespace stops, load modules by being asked for.

A process whose memory is measured gets a second filter, ``install_witness``: its own resident set is the only place
where it can keep anything. A process of a rank gets another, ``install_apart``: it neither waits on memory that other
processes could have mapped as well (a page of a library's file, say), nor wakes who waits there, and makes no file that
has a number of the machine's.

Calls newer than this list do not exist in here, nor do those for 32-bit programs. Let through on purpose: personality,
which changes only its caller, and seccomp, which can only remove rights.

Reference: Linux, Documentation/userspace-api/seccomp_filter.rst; arch/x86/entry/syscalls/syscall_64.tbl;
include/uapi/asm-generic/unistd.h.
"""

from __future__ import annotations

import ctypes
import errno
import os
import struct
from collections.abc import Mapping, Sequence

from mlsys_grading.sandbox import kernel

# name -> number on x86_64, number on aarch64 (None: it has no such call)
REFUSED: dict[str, tuple[int, int | None]] = {
    "acct": (163, 89),
    "add_key": (248, 217),
    "adjtimex": (159, 171),
    "bpf": (321, 280),
    "cachestat": (451, 451),
    "chroot": (161, 51),
    "clock_adjtime": (305, 266),
    "clock_settime": (227, 112),
    "delete_module": (176, 106),
    "fanotify_init": (300, 262),
    "finit_module": (313, 273),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fsopen": (430, 430),
    "fspick": (433, 433),
    "get_mempolicy": (239, 236),
    "futex_requeue": (456, 456),
    "futex_wait": (455, 455),
    "futex_waitv": (449, 449),
    "futex_wake": (454, 454),
    "init_module": (175, 105),
    "inotify_init": (253, None),
    "inotify_init1": (294, 26),
    "io_setup": (206, 0),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "io_uring_setup": (425, 425),
    "ioperm": (173, None),
    "iopl": (172, None),
    "kcmp": (312, 272),
    "kexec_file_load": (320, 294),
    "kexec_load": (246, 104),
    "keyctl": (250, 219),
    "landlock_add_rule": (445, 445),
    "landlock_create_ruleset": (444, 444),
    "landlock_restrict_self": (446, 446),
    "mbind": (237, 235),
    "memfd_secret": (447, 447),
    "migrate_pages": (256, 238),
    "mincore": (27, 232),
    "modify_ldt": (154, None),
    "mount": (165, 40),
    "mount_setattr": (442, 442),
    "move_pages": (279, 239),
    "move_mount": (429, 429),
    "msgget": (68, 186),
    "name_to_handle_at": (303, 264),
    "open_by_handle_at": (304, 265),
    "open_tree": (428, 428),
    "open_tree_attr": (467, 467),
    "perf_event_open": (298, 241),
    "pidfd_getfd": (438, 438),
    "pivot_root": (155, 41),
    "process_madvise": (440, 440),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "ptrace": (101, 117),
    "quotactl": (179, 60),
    "quotactl_fd": (443, 443),
    "reboot": (169, 142),
    "request_key": (249, 218),
    "semget": (64, 190),
    "set_mempolicy": (238, 237),
    "set_mempolicy_home_node": (450, 450),
    "setdomainname": (171, 162),
    "sethostname": (170, 161),
    "setns": (308, 268),
    "settimeofday": (164, 170),
    "shmget": (29, 194),
    "swapoff": (168, 225),
    "swapon": (167, 224),
    "sysinfo": (99, 179),
    "syslog": (103, 116),
    "umount2": (166, 39),
    "unshare": (272, 97),
    "userfaultfd": (323, 282),
    "vhangup": (153, 58),
    "vmsplice": (278, 75),
}
_NEWEST = 469  # file_setattr, of Linux 6.17
_PRCTL, _SET_MEMORY_MERGE = (157, 167), 67  # as MADV_MERGEABLE, of all pages
_CLONE, _SOCKET, _SOCKETPAIR, _SET_AFFINITY = (56, 220), (41, 198), (53, 199), (203, 122)
# clone3 takes its flags through memory, where no filter can look; the C library falls back to clone. A pidfd's inode is
# the number of all processes that the machine has started; Python falls back to waits without one.
_MISSING = (435, 434)  # clone3, pidfd_open
_ARCHITECTURES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}
_FCNTL, _MADVISE, _PREADV2 = (72, 25), (28, 233), (327, 286)
_ADVICE = ((73, 32), (221, 223), (187, 213), (162, 81), (306, 267))  # flock, fadvise64, readahead, sync, syncfs
# setpriority, sched_setparam, sched_setscheduler, sched_setattr: a process that steps back is not starved by others
_PRIORITIES = ((141, 140), (142, 118), (144, 119), (314, 274))
_LOCKING = (6, 7, 37, 38)  # F_SETLK, F_SETLKW, F_OFD_SETLK, F_OFD_SETLKW
# F_GETLK, F_OFD_GETLK, F_SETLEASE, F_NOTIFY, F_SETPIPE_SZ, and F_GET_RW_HINT to F_SET_FILE_RW_HINT
_TELLING = (5, 36, 0x400, 0x402, 0x407, 1035, 1036, 1037, 1038)
# MADV_MERGEABLE, MADV_COLD, MADV_PAGEOUT, MADV_COLLAPSE: of files that others read as well, or of pages like theirs
_PAGES_OF_OTHERS = (12, 20, 21, 25)
_SET_OPTION, _SIZES = (54, 208), (7, 8)  # setsockopt: SO_SNDBUF, SO_RCVBUF
# getsockopt: SO_COOKIE, SO_NETNS_COOKIE, SO_PEERPIDFD count on all the machine; setsockopt: SO_PASSPIDFD
_GET_OPTION, _NUMBERED, _PASS_PIDFD = (55, 209), (57, 71, 77), 76
# ioctl: what a file system has in memory of a file, and its flags (ext4, XFS, btrfs), and the entropy of all
_IOCTL, _OF_FILES = (16, 29), (0x66, 0x58, 0x94, 0x52)
_HUGE, _HUGE_FILE = 0x40000, 4  # MAP_HUGETLB, MFD_HUGETLB: all take them from one pool
_OF_CACHE = 8 | 0x80  # RWF_NOWAIT tells whether a page is in memory, RWF_DONTCACHE leaves it as it was
_SET_LIMIT, _CHANGE_LIMIT = (160, 164), (302, 261)  # setrlimit, prlimit64
_CPU_SECONDS = 0  # RLIMIT_CPU
_NEW_ANYTHING = (
    kernel.NEW_USER | kernel.NEW_MOUNT | kernel.NEW_PID | kernel.NEW_NET | kernel.NEW_IPC | kernel.NEW_UTS | 0x2000000
)
_NEW_PIDFD = 0x1000  # CLONE_PIDFD
_TCP_UDP = (0, 6, 17)
_SOCKETS = {1: (0,), 2: _TCP_UDP, 10: _TCP_UDP, 16: (0,)}  # unix, inet, inet6, netlink: family -> protocols
_X32 = 0x40000000  # the other numbers of the same calls on x86_64

SUPPORTED = tuple(_ARCHITECTURES)
Line = tuple[int, int, int, int]  # of the program: operation, lines to jump over if it holds and if not, operand

_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _MASK, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x54, 0x06
_ALLOW, _REFUSE, _KILL = 0x7FFF0000, 0x00050000, 0x80000000
_NUMBER, _ARCHITECTURE = 0, 4  # offsets in struct seccomp_data
_FIRST_ARGUMENT, _SECOND_ARGUMENT, _THIRD_ARGUMENT = 16, 24, 32  # offsets of their lower halves (little-endian)
_FOURTH_ARGUMENT, _SIXTH_ARGUMENT = 40, 56
_DO_NOTHING: Line = (_RETURN, 0, 0, _REFUSE | 0)

_MMAP, _MEMFD, _NEW_THREAD, _SHARED = (9, 222), (319, 279), 0x10000, 1

# Files whose inode has the next number of a counter of the whole machine.
_COUNTED: dict[str, tuple[int | None, int | None]] = {
    "memfd_create": _MEMFD,
    "pipe": (22, None),
    "pipe2": (293, 59),
    "socket": _SOCKET,
    "socketpair": _SOCKETPAIR,
}
# Of a process whose memory is measured: other programs, other processes, and memory outside of its own.
_WITNESSED: dict[str, tuple[int | None, int | None]] = {
    "execve": (59, 221),
    "execveat": (322, 281),
    "fork": (57, None),
    "vfork": (58, None),
    **_COUNTED,
}
_FUTEX, _OPERATION, _PRIVATE = (202, 98), 0x7F, 0x80
_WAITING, _WAKING = (0, 9), (1, 10)  # FUTEX_WAIT, FUTEX_WAKE, and each with a mask


def program(machine: str, is_pinned: bool = False) -> bytes:
    """Build the filter for ``machine`` ("x86_64" or "aarch64") as an array of struct sock_filter.

    ``is_pinned``: who calls may not choose other processors.
    """
    column, refuse, code = _beginning(machine)
    pretend_missing = (_RETURN, 0, 0, _REFUSE | errno.ENOSYS)
    code += [(_AT_LEAST, 0, 1, _NEWEST + 1), pretend_missing]
    code += _refusals(REFUSED | ({"sched_setaffinity": _SET_AFFINITY} if is_pinned else {}), column, refuse)
    for missing in _MISSING:
        code += [(_EQUAL, 0, 1, missing), pretend_missing]
    unwanted = _NEW_ANYTHING | _NEW_PIDFD
    code += _check(_CLONE[column], (_LOAD, 0, 0, _FIRST_ARGUMENT), (_ANY_BIT, 0, 1, unwanted), refuse)
    # A process that is not dumpable hides its memory from the watcher, too.
    options = _one_of((kernel.SET_DUMPABLE, _SET_MEMORY_MERGE), refuse)
    code += _check(_PRCTL[column], (_LOAD, 0, 0, _FIRST_ARGUMENT), *options)
    code += _check(
        _PRCTL[column],
        (_LOAD, 0, 0, _FIRST_ARGUMENT),
        (_EQUAL, 0, 3, kernel.SET_PDEATHSIG),
        (_LOAD, 0, 0, _SECOND_ARGUMENT),
        (_EQUAL, 0, 1, 0),
        refuse,
    )
    for call in (*_ADVICE, *_PRIORITIES):
        code += [(_EQUAL, 0, 1, call[column]), _DO_NOTHING]
    locking, telling = _one_of(_LOCKING, _DO_NOTHING), _one_of(_TELLING, refuse)
    code += _check(_FCNTL[column], (_LOAD, 0, 0, _SECOND_ARGUMENT), *locking, *telling)
    useless = (_RETURN, 0, 0, _REFUSE | errno.EINVAL)
    code += _check(_MADVISE[column], (_LOAD, 0, 0, _THIRD_ARGUMENT), *_one_of(_PAGES_OF_OTHERS, useless))
    code += _check(
        _IOCTL[column],
        (_LOAD, 0, 0, _SECOND_ARGUMENT),
        (_MASK, 0, 0, 0xFF00),
        *_one_of([kind << 8 for kind in _OF_FILES], (_RETURN, 0, 0, _REFUSE | errno.ENOTTY)),
    )
    exhausted = (_RETURN, 0, 0, _REFUSE | errno.ENOMEM)
    code += _check(_MMAP[column], (_LOAD, 0, 0, _FOURTH_ARGUMENT), (_ANY_BIT, 0, 1, _HUGE), exhausted)
    code += _check(_MEMFD[column], (_LOAD, 0, 0, _SECOND_ARGUMENT), (_ANY_BIT, 0, 1, _HUGE_FILE), exhausted)
    unknown = (_RETURN, 0, 0, _REFUSE | errno.ENOPROTOOPT)
    code += _check(
        _SET_OPTION[column],
        (_LOAD, 0, 0, _SECOND_ARGUMENT),
        (_EQUAL, 0, len(_SIZES) + 4, 1),  # SOL_SOCKET
        (_LOAD, 0, 0, _THIRD_ARGUMENT),
        (_EQUAL, 0, 1, _PASS_PIDFD),
        unknown,
        *_one_of(_SIZES, _DO_NOTHING),
    )
    code += _check(
        _GET_OPTION[column],
        (_LOAD, 0, 0, _SECOND_ARGUMENT),
        (_EQUAL, 0, len(_NUMBERED) + 2, 1),
        (_LOAD, 0, 0, _THIRD_ARGUMENT),
        *_one_of(_NUMBERED, unknown),
    )
    unsupported = (_RETURN, 0, 0, _REFUSE | errno.EOPNOTSUPP)
    code += _check(_PREADV2[column], (_LOAD, 0, 0, _SIXTH_ARGUMENT), (_ANY_BIT, 0, 1, _OF_CACHE), unsupported)
    # A process over its CPU limit is killed by the kernel, which would look like a kill from outside.
    code += _check(_SET_LIMIT[column], (_LOAD, 0, 0, _FIRST_ARGUMENT), (_EQUAL, 0, 1, _CPU_SECONDS), refuse)
    code += _check(
        _CHANGE_LIMIT[column],
        (_LOAD, 0, 0, _SECOND_ARGUMENT),
        (_EQUAL, 0, 5, _CPU_SECONDS),
        (_LOAD, 0, 0, _THIRD_ARGUMENT),
        (_EQUAL, 0, 2, 0),
        (_LOAD, 0, 0, _THIRD_ARGUMENT + 4),
        (_EQUAL, 1, 0, 0),
        refuse,
    )
    sockets = _sockets(refuse)
    code += [(_EQUAL, 1, 0, _SOCKET[column]), (_EQUAL, 0, len(sockets), _SOCKETPAIR[column]), *sockets]
    code += [(_RETURN, 0, 0, _ALLOW)]
    return _packed(code)


def witness_program(machine: str) -> bytes:
    """Build the second filter, of a process whose resident set a mark depends on."""
    column, refuse, code = _beginning(machine)
    code += _refusals(_WITNESSED, column, refuse)
    code += _check(_CLONE[column], (_LOAD, 0, 0, _FIRST_ARGUMENT), (_ANY_BIT, 1, 0, _NEW_THREAD), refuse)
    # Pages that can be shared stay in memory when the process has given them up, in nobody's resident set.
    code += _check(_MMAP[column], (_LOAD, 0, 0, _FOURTH_ARGUMENT), (_ANY_BIT, 0, 1, _SHARED), refuse)
    code += [(_RETURN, 0, 0, _ALLOW)]
    return _packed(code)


def apart_program(machine: str) -> bytes:
    """Build the second filter of a process that tells no other one anything: its waits and wakes are its own.

    A wait on shared memory returns at once, whatever the memory holds and whatever other processes do: one without a
    deadline as if the value had changed, one with a deadline as if that had passed. The C library then looks again, and
    again, where there is no deadline: joins of threads and locks of processes still work, but take processor time.
    With a deadline, a lock that is held is given up at once, however long the caller would have waited: a filter has no
    clock. If such a wait returned as the other does, the C library would never look at the time, and try for ever.

    It makes no pipe, no socket and no file of memory: their numbers count on all the machine, as does TCP's memory.
    """
    column, refuse, code = _beginning(machine)
    code += _refusals(_COUNTED, column, refuse)
    again, late, missing = (
        (_RETURN, 0, 0, _REFUSE | number) for number in (errno.EAGAIN, errno.ETIMEDOUT, errno.ENOSYS)
    )
    by_deadline = [
        (_LOAD, 0, 0, _FOURTH_ARGUMENT),
        (_EQUAL, 0, 2, 0),
        (_LOAD, 0, 0, _FOURTH_ARGUMENT + 4),
        (_EQUAL, 1, 0, 0),
        late,
        again,
    ]
    plain, masked = _WAITING
    shared = [
        (_MASK, 0, 0, _OPERATION),
        (_EQUAL, 1, 0, plain),
        (_EQUAL, 0, len(by_deadline), masked),
        *by_deadline,
        *_one_of(_WAKING, _DO_NOTHING),
        missing,
    ]
    code += _check(_FUTEX[column], (_LOAD, 0, 0, _SECOND_ARGUMENT), (_ANY_BIT, len(shared), 0, _PRIVATE), *shared)
    code += [(_RETURN, 0, 0, _ALLOW)]
    return _packed(code)


def _beginning(machine: str) -> tuple[int, Line, list[Line]]:
    """Return the column of the machine's numbers, the refusal, and the lines that load the number of a call."""
    column, architecture = _ARCHITECTURES[machine]
    refuse: Line = (_RETURN, 0, 0, _REFUSE | errno.EPERM)
    code: list[Line] = [
        (_LOAD, 0, 0, _ARCHITECTURE),
        (_EQUAL, 1, 0, architecture),
        (_RETURN, 0, 0, _KILL),
        (_LOAD, 0, 0, _NUMBER),
    ]
    if machine == "x86_64":
        code += [(_AT_LEAST, 0, 1, _X32), refuse]
    return column, refuse, code


def _refusals(calls: Mapping[str, tuple[int | None, int | None]], column: int, refuse: Line) -> list[Line]:
    known = (numbers[column] for numbers in calls.values())
    return [line for number in known if number is not None for line in ((_EQUAL, 0, 1, number), refuse)]


def _packed(code: list[Line]) -> bytes:
    return b"".join(struct.pack("<HBBI", *line) for line in code)


def _one_of(values: Sequence[int], answer: Line) -> list[Line]:
    """Give ``answer`` if what was loaded is one of ``values``."""
    last = len(values) - 1
    return [*((_EQUAL, last - at, int(at == last), value) for at, value in enumerate(values)), answer]


def _check(call: int, *lines: Line) -> list[Line]:
    """Run ``lines`` for one system call; after them, as for every other call, its number is loaded again."""
    return [(_EQUAL, 0, len(lines), call), *lines, (_LOAD, 0, 0, _NUMBER)]


def _sockets(refuse: Line) -> list[Line]:
    """Allow the families and protocols of ``_SOCKETS``, and refuse all others."""
    code: list[Line] = []
    for family, protocols in _SOCKETS.items():
        code += [(_LOAD, 0, 0, _FIRST_ARGUMENT), (_EQUAL, 0, len(protocols) + 3, family)]
        code += [(_LOAD, 0, 0, _THIRD_ARGUMENT)]
        code += [(_EQUAL, len(protocols) - at, 0, protocol) for at, protocol in enumerate(protocols)]
        code += [refuse, (_RETURN, 0, 0, _ALLOW)]
    return [*code, refuse]


def install(is_pinned: bool = False) -> None:
    """Install the filter for this process and all that it will start, permanently. Needs NO_NEW_PRIVS."""
    _install(program(os.uname().machine, is_pinned))


def install_witness() -> None:
    """Install the second filter, in a process whose memory will be measured. Needs NO_NEW_PRIVS."""
    _install(witness_program(os.uname().machine))


def install_apart() -> None:
    """Install the second filter, in a process that other sandboxes must learn nothing from. Needs NO_NEW_PRIVS."""
    _install(apart_program(os.uname().machine))


def _install(filters: bytes) -> None:
    memory = ctypes.create_string_buffer(filters, len(filters))

    class SockFprog(ctypes.Structure):
        _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_void_p))

    described = SockFprog(len(filters) // 8, ctypes.addressof(memory))
    kernel.prctl(kernel.SET_SECCOMP, 2, ctypes.addressof(described))
