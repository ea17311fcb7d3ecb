"""The system call filter of sandboxed code, as a BPF program: bytes for `prctl(PR_SET_SECCOMP)`.

Most calls are allowed, since any program may run; refused are those that lead out of the sandbox, into rarely used parts of the kernel, or
to memory that no limit counts. Calls of another architecture (32 bit, x32) are refused. Built in the parent, loaded by `keeper`."""

import errno
import os
import platform
import socket
import stat
import struct
from dataclasses import dataclass
from functools import cache

# ---- system calls

NUMBERS: dict[str, tuple[int | None, int | None]] = {
    "acct": (163, 89), "add_key": (248, 217), "adjtimex": (159, 171), "bpf": (321, 280), "chmod": (90, None), "chown": (92, None),
    "chroot": (161, 51), "clock_adjtime": (305, 266), "clock_settime": (227, 112), "clone": (56, 220), "clone3": (435, 435),
    "creat": (85, None), "delete_module": (176, 106), "fanotify_init": (300, 262), "fanotify_mark": (301, 263), "fchmod": (91, 52),
    "fchmodat": (268, 53), "fchmodat2": (452, 452), "fchownat": (260, 54), "fcntl": (72, 25), "finit_module": (313, 273),
    "fsconfig": (431, 431), "fsmount": (432, 432), "fsopen": (430, 430), "fspick": (433, 433), "futimesat": (261, None),
    "init_module": (175, 105), "inotify_init": (253, None), "inotify_init1": (294, 26), "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427), "io_uring_setup": (425, 425), "ioctl": (16, 29), "ioperm": (173, None), "iopl": (172, None),
    "ioprio_set": (251, 30), "kcmp": (312, 272), "kexec_file_load": (320, 294), "kexec_load": (246, 104), "keyctl": (250, 219),
    "kill": (62, 129), "lchown": (94, None), "listmount": (458, 458), "lookup_dcookie": (212, 18), "lremovexattr": (198, 15),
    "lsetxattr": (189, 6), "mbind": (237, 235), "memfd_create": (319, 279), "memfd_secret": (447, 447), "migrate_pages": (256, 238),
    "mknod": (133, None), "mknodat": (259, 33), "modify_ldt": (154, None), "mount": (165, 40), "mount_setattr": (442, 442),
    "move_mount": (429, 429), "move_pages": (279, 239), "mq_open": (240, 180), "mq_unlink": (241, 181), "msgctl": (71, 187),
    "msgget": (68, 186), "msgrcv": (70, 188), "msgsnd": (69, 189), "name_to_handle_at": (303, 264), "nfsservctl": (180, 42),
    "open": (2, None), "open_by_handle_at": (304, 265), "open_tree": (428, 428), "openat": (257, 56), "openat2": (437, 437),
    "perf_event_open": (298, 241), "personality": (135, 92), "pidfd_getfd": (438, 438), "pidfd_send_signal": (424, 424),
    "pivot_root": (155, 41), "prctl": (157, 167), "prlimit64": (302, 261), "process_madvise": (440, 440), "process_mrelease": (448, 448),
    "process_vm_readv": (310, 270), "process_vm_writev": (311, 271), "ptrace": (101, 117), "quotactl": (179, 60),
    "quotactl_fd": (443, 443), "reboot": (169, 142), "removexattr": (197, 14), "request_key": (249, 218), "rt_sigqueueinfo": (129, 138),
    "rt_tgsigqueueinfo": (297, 240), "sched_setaffinity": (203, 122), "sched_setattr": (314, 274), "sched_setparam": (142, 118),
    "sched_setscheduler": (144, 119), "semctl": (66, 191), "semget": (64, 190), "semop": (65, 193), "semtimedop": (220, 192),
    "set_mempolicy": (238, 237), "setdomainname": (171, 162), "sethostname": (170, 161), "setns": (308, 268), "setpgid": (109, 154),
    "setpriority": (141, 140), "setsid": (112, 157), "setsockopt": (54, 208), "settimeofday": (164, 170), "setxattr": (188, 5),
    "shmat": (30, 196), "shmctl": (31, 195), "shmget": (29, 194), "socket": (41, 198), "socketpair": (53, 199), "statmount": (457, 457),
    "swapoff": (168, 225), "swapon": (167, 224), "_sysctl": (156, None), "sysfs": (139, None), "syslog": (103, 116), "tgkill": (234, 131),
    "tkill": (200, 130), "truncate": (76, 45), "umount2": (166, 39), "unshare": (272, 97), "uselib": (134, None),
    "userfaultfd": (323, 282), "utime": (132, None), "utimensat": (280, 88), "utimes": (235, None), "vhangup": (153, 58),
    "vmsplice": (278, 75),
}  # fmt: skip
"""On x86_64 and on aarch64; None where that machine has no such call."""
NEWEST = 462
"""The last reviewed call (mseal). Calls of newer kernels do not exist for sandboxed code."""

FORBIDDEN = (
    # Other processes.
    "process_madvise", "process_mrelease", "kcmp", "pidfd_getfd",
    # Mounts and namespaces.
    "mount", "umount2", "pivot_root", "chroot", "move_mount", "open_tree", "fsopen", "fsconfig", "fsmount", "fspick", "mount_setattr",
    "statmount", "listmount", "unshare", "setns",
    # Parts of the kernel with a history of escapes, which ordinary code does not need.
    "keyctl", "add_key", "request_key", "bpf", "perf_event_open", "userfaultfd", "io_uring_setup", "io_uring_enter", "io_uring_register",
    "fanotify_init", "fanotify_mark", "open_by_handle_at", "name_to_handle_at", "vmsplice", "modify_ldt", "uselib", "sysfs", "_sysctl",
    "nfsservctl", "lookup_dcookie",
    # The machine.
    "kexec_load", "kexec_file_load", "init_module", "finit_module", "delete_module", "reboot", "swapon", "swapoff", "acct", "quotactl",
    "quotactl_fd", "iopl", "ioperm", "syslog", "vhangup", "settimeofday", "clock_settime", "clock_adjtime", "adjtimex", "sethostname",
    "setdomainname", "mbind", "migrate_pages", "move_pages", "set_mempolicy",
)  # fmt: skip
WITHIN = (
    # Processes of the same user and namespace.
    "ptrace", "process_vm_readv", "process_vm_writev",
    # Memory that belongs to no process, so that no limit counts it.
    "memfd_create", "memfd_secret", "shmget", "shmat", "shmctl", "msgget", "msgsnd", "msgrcv", "msgctl", "semget", "semop", "semctl",
    "semtimedop", "mq_open", "mq_unlink",
)  # fmt: skip
"""These affect only their namespaces. Test suites and debuggers need them."""
BY_PATH = (
    "chmod", "fchmodat", "fchmodat2", "chown", "lchown", "fchownat", "setxattr", "lsetxattr", "removexattr", "lremovexattr", "utime",
    "utimes", "futimesat",
)  # fmt: skip
"""Not covered by Landlock: permissions and times of files by name, anywhere."""
MODES: dict[str, tuple[int, int | None]] = {
    "chmod": (1, None), "fchmod": (1, None), "fchmodat": (2, None), "fchmodat2": (2, None), "creat": (1, None), "mknod": (1, None),
    "mknodat": (2, None), "open": (2, 1), "openat": (3, 2),
}  # fmt: skip
"""Calls that set the mode of a file: the position of the mode, and of the flags without which it has no meaning. That of `openat2` is in
memory, where a filter cannot look: without it programs use `openat`."""
GROUPS = ("setpgid", "setsid")
"""With these a process leaves its group, and so the one signal that ends them all."""
WATCHING = ("inotify_init", "inotify_init1", "truncate")
"""Events in folders, which Landlock does not cover; and truncation, which its older versions do not."""


# ---- the filter

_LOAD, _EQUAL, _GREATER, _SET, _RETURN = 0x20, 0x15, 0x25, 0x45, 0x06
"""BPF instructions: load a word, jump if equal, if greater, if any bit is set; return."""
_NUMBER, _ARCHITECTURE, _ARGUMENTS = 0, 4, 16
"""Offsets in `struct seccomp_data`; each argument has 8 bytes, the lower half first on both machines."""
_ALLOW, _ERRNO, _KILL = 0x7FFF0000, 0x00050000, 0x80000000
_NEW_NAMESPACES = 0x7E020000
"""CLONE_NEWNS | NEWCGROUP | NEWUTS | NEWIPC | NEWUSER | NEWPID | NEWNET."""
_TIOCSTI, _TIOCLINUX = 0x5412, 0x541C
_PR_SET_DUMPABLE = 4
_F_SETOWN, _F_SETSIG, _F_SETOWN_EX = 8, 10, 15
"""These make a readable file send a signal to any process."""
_OF_ANY_PROCESS = ("prlimit64", "sched_setparam", "sched_setscheduler", "sched_setaffinity", "sched_setattr")
"""Their first argument is a process; 0 is the caller itself."""
_TMPFILE = 0o20000000
_ASK_PERSONALITY = 0xFFFFFFFF
_MACHINES = {"x86_64": (0xC000003E, 0), "aarch64": (0xC00000B7, 1), "arm64": (0xC00000B7, 1)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Filter:
    """What the filter depends on."""

    families: tuple[int, ...] = (socket.AF_UNIX,)
    """Allowed socket families. A pair of connected streams is always allowed."""
    signals: bool = True
    """Whether signals may be sent to any visible process; otherwise only to the first of the code's processes and its group, which none of
    them can leave."""
    shares_user: bool = False
    """Whether others outside have the same user id and only Landlock separates them: then everything that Landlock does not cover is
    refused."""
    allows_within: bool = False
    """Whether calls that stay inside the namespaces (`WITHIN`) are allowed."""
    keeps_files: bool = False
    """Whether its files outlive it: then none can be created that runs as its owner for another user."""


def is_supported(machine: str = "") -> bool:
    return (machine or platform.machine()) in _MACHINES


@cache
def program(wanted: Filter, machine: str = "") -> bytes:
    """For this machine, or the named one. If `signals` is false the keeper fills in the pid: see `OWN_PID`."""
    architecture, column = _MACHINES[machine or platform.machine()]
    steps = [
        _step(_LOAD, _ARCHITECTURE),
        _step(_EQUAL, architecture, 1, 0),
        _step(_RETURN, _KILL),
        _step(_LOAD, _NUMBER),
        _step(_GREATER, NEWEST, 0, 1),  # including x32: its calls have bit 30 set
        _refuse(errno.ENOSYS),
    ]
    for name, check in _checks(wanted).items():
        steps += _if_call(name, column, check)
    if wanted.keeps_files:
        steps += _if_call("openat2", column, [_refuse(errno.ENOSYS)])
        for name, (mode, flags) in MODES.items():
            if not (wanted.shares_user and name in BY_PATH):
                steps += _if_call(name, column, _no_set_id(mode, flags))
    steps += _each(FORBIDDEN if wanted.allows_within else FORBIDDEN + WITHIN, column, errno.EPERM)
    if not wanted.signals:
        steps += _each(GROUPS, column, 0)  # reported as done: programs give up if it fails
    if wanted.shares_user:
        # Copying a file sets its permissions and times. Reported as done, because programs give up if it fails.
        steps += _each(BY_PATH, column, 0) + _each(WATCHING, column, errno.EPERM)
    return b"".join([*steps, _step(_RETURN, _ALLOW)])


def open_program(wanted: Filter) -> int:
    """An open file with the program, for `bwrap --seccomp`: each run reads its own, and the caller closes it."""
    file = os.memfd_create("seccomp")
    os.write(file, program(wanted))
    os.lseek(file, 0, os.SEEK_SET)
    return file


def _each(names: tuple[str, ...], column: int, error: int) -> list[bytes]:
    return [step for name in names for step in _if_call(name, column, [_refuse(error)])]


def _if_call(name: str, column: int, check: list[bytes]) -> list[bytes]:
    number = NUMBERS[name][column]
    return [] if number is None else [_step(_EQUAL, number, 0, len(check)), *check]


OWN_PID = 0x7E57_91D0
"""Placeholder for the pid of the code: larger than any pid."""


def _checks(wanted: Filter) -> dict[str, list[bytes]]:
    """The checks of a call; each list ends with a return."""
    checks = {
        "clone": [_argument(0), _step(_SET, _NEW_NAMESPACES, 0, 1), _refuse(errno.EPERM), _allow()],
        # Its flags are in memory, where a filter cannot look. Without it the C library uses `clone`.
        "clone3": [_refuse(errno.ENOSYS)],
        "socket": _only(0, wanted.families, errno.EACCES),
        "socketpair": _pairs(wanted),
        "ioctl": _none_of(1, (_TIOCSTI, _TIOCLINUX), errno.EPERM),
        "personality": _only(0, (0, _ASK_PERSONALITY), errno.EPERM),
        # A process that cannot be dumped cannot be inspected by the one that counts its usage.
        "prctl": _none_of(0, (_PR_SET_DUMPABLE,), errno.EPERM),
        # Reported as done: a socket's capacity is counted at its usual size.
        "setsockopt": _none_of(2, (socket.SO_SNDBUF,), 0),
    }
    if wanted.allows_within:
        del checks["prctl"]
    if not wanted.signals:
        checks |= {name: _only(0, (0, OWN_PID), errno.EPERM) for name in ("kill", "tgkill")}
        checks |= {
            name: [_refuse(errno.EPERM)]
            for name in ("tkill", "rt_sigqueueinfo", "rt_tgsigqueueinfo", "pidfd_send_signal")
        }  # fmt: skip
        checks["fcntl"] = _none_of(1, (_F_SETOWN, _F_SETSIG, _F_SETOWN_EX), errno.EPERM)
    if wanted.shares_user:
        checks |= {name: _only(0, (0,), errno.EPERM) for name in _OF_ANY_PROCESS}
        checks |= {name: _only(1, (0,), errno.EPERM) for name in ("setpriority", "ioprio_set")}
        checks["utimensat"] = _only(1, (0,), 0)  # of an open file: then no name is given
    return checks


def _pairs(wanted: Filter) -> list[bytes]:
    """Connected stream pairs stay connected. A datagram pair (2, and 3 means the same here) can send to any other address."""
    family = [_argument(0), _step(_EQUAL, socket.AF_UNIX, 1, 0), _refuse(errno.EACCES)]
    if socket.AF_UNIX in wanted.families:
        return [*family, _allow()]
    return [*family, _argument(1), _step(_SET, socket.SOCK_DGRAM, 0, 1), _refuse(errno.EACCES), _allow()]


def _only(argument: int, values: tuple[int, ...], error: int) -> list[bytes]:
    tests = [_step(_EQUAL, value, len(values) - place, 0) for place, value in enumerate(values)]
    return [_argument(argument), *tests, _refuse(error), _allow()]


def _none_of(argument: int, values: tuple[int, ...], error: int) -> list[bytes]:
    tests = [_step(_EQUAL, value, len(values) - place, 0) for place, value in enumerate(values)]
    return [_argument(argument), *tests, _allow(), _refuse(error)]


def _no_set_id(mode: int, flags: int | None) -> list[bytes]:
    is_making = [] if flags is None else [_argument(flags), _step(_SET, os.O_CREAT | _TMPFILE, 1, 0), _allow()]
    return [*is_making, _argument(mode), _step(_SET, stat.S_ISUID | stat.S_ISGID, 0, 1), _refuse(errno.EPERM), _allow()]


def _argument(place: int) -> bytes:
    return _step(_LOAD, _ARGUMENTS + 8 * place)


def _allow() -> bytes:
    return _step(_RETURN, _ALLOW)


def _refuse(error: int) -> bytes:
    return _step(_RETURN, _ERRNO | error)


def _step(code: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
    """One `struct sock_filter`."""
    return struct.pack("=HBBI", code, if_true, if_false, value)
