"""Runs inside the sandbox, in the keeper and in the code's process: giving up rights, Landlock rules, the filter of system calls.

The standard library alone; sent together with `keeper`. What is to be refused was worked out outside (`landlock`, `seccomp`).
"""

from __future__ import annotations

import _ctypes
import os

TYPE_CHECKING = False  # as in `keeper`
if TYPE_CHECKING:
    from typing import Any

_SIGKILL = 9
_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE, _PR_SET_SECCOMP, _PR_CAPBSET_DROP = 1, 4, 22, 24
_PR_SET_CHILD_SUBREAPER, _PR_SET_NO_NEW_PRIVS, _PR_CAP_AMBIENT = 36, 38, 47
_SECCOMP_MODE_FILTER, _CLEAR_ALL, _LAST_CAPABILITY = 2, 4, 63
_CAPABILITIES_OF_SELF = (0x20080522).to_bytes(8, "little")
_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_PATH_BENEATH = 1
_SCOPE_ABSTRACT_SOCKETS, _SCOPE_SIGNALS = 1, 2
_NET_TCP = 3


class _Long(_ctypes._SimpleCData):  # type: ignore[type-arg]
    _type_ = "l"


class _Character(_ctypes._SimpleCData):  # type: ignore[type-arg]
    _type_ = "c"


class _Function(_ctypes.CFuncPtr):
    """A function of the C library. What `ctypes` is made of: importing all of that would take longer than what is done here."""

    _flags_ = _ctypes.FUNCFLAG_CDECL | _ctypes.FUNCFLAG_USE_ERRNO
    _restype_ = _Long


class Confinement:
    def __init__(self, job: dict[str, Any]) -> None:
        self.job = job
        library = _ctypes.dlopen(None, 0)  # type: ignore[arg-type]  # None is this process itself
        self._syscall, self._prctl, self._capset = (_Function(_ctypes.dlsym(library, name)) for name in ("syscall", "prctl", "capset"))

    def prctl(self, option: int, *values: int | bytes) -> int:
        # The C library's own function gives an int: of what comes back only that much is meant.
        done = self._prctl(_Long(option), *_given(values), *[_Long(0)] * (4 - len(values))) & 0xFFFFFFFF
        return -1 if done == 0xFFFFFFFF else int(done)

    def call(self, number: int, *values: int | bytes) -> int:
        done = int(self._syscall(_Long(number), *_given(values)))
        if done < 0:
            error = _ctypes.get_errno()
            raise OSError(error, f"system call {number}: {os.strerror(error)}")
        return done

    def give_up_rights(self) -> None:
        """The keeper: an ordinary user with no capability, whom nobody in here can look into."""
        uid = self.job["uid"]
        if uid:
            for capability in range(_LAST_CAPABILITY + 1):
                self.prctl(_PR_CAPBSET_DROP, capability)
            os.setgroups([])
            os.setresgid(uid, uid, uid)
            os.setresuid(uid, uid, uid)
            self._capset(_CAPABILITIES_OF_SELF, bytes(24))  # those that programs would inherit
        if os.getuid() == 0 or os.geteuid() == 0:
            raise PermissionError("the sandbox would run as root")
        self.prctl(_PR_CAP_AMBIENT, _CLEAR_ALL)
        if self.prctl(_PR_SET_NO_NEW_PRIVS, 1) != 0:
            raise OSError(_ctypes.get_errno(), "no_new_privs")
        self.prctl(_PR_SET_CHILD_SUBREAPER, 1)
        if os.getpid() == 1:  # else it must outlive its parent for a moment: nobody but it can end the others
            self.prctl(_PR_SET_PDEATHSIG, _SIGKILL)
        self.prctl(_PR_SET_DUMPABLE, 0)

    def keeps_signals_in(self) -> bool:
        """A domain of its own, out of which no signal gets; tried on our parent, before anything relies on it."""
        if self.job["abi"] < 6:
            return False
        self.restrict(self.ruleset(0, 0, _SCOPE_SIGNALS))
        try:
            os.kill(os.getppid(), 0)
        except PermissionError:
            return True
        return False

    def show(self) -> None:
        """The code's process: the keeper, and nobody else, looks into it; and it may set what the kernel keeps of it."""
        self.prctl(_PR_SET_DUMPABLE, 1)
        self.prctl(_PR_SET_PDEATHSIG, _SIGKILL)

    def confine(self) -> None:
        """The code's process, and by inheritance all it will start."""
        job = self.job
        if job["abi"]:
            scope = _SCOPE_ABSTRACT_SOCKETS | _SCOPE_SIGNALS if job["abi"] >= 6 else 0
            rules = self.ruleset(job["handled"], 0 if job["network"] else _NET_TCP, scope)
            for path, allowed in job["rules"]:
                self.allow(rules, path, allowed)
            self.restrict(rules)
        if job["filter"]:
            self.filter(job["filter"].replace(job["own_pid"], os.getpid().to_bytes(4, "little")))

    def ruleset(self, files: int, network: int, scope: int) -> int:
        abi = self.job["abi"]
        attributes = files.to_bytes(8, "little")
        if abi >= 4:
            attributes += network.to_bytes(8, "little")
        if abi >= 6:
            attributes += scope.to_bytes(8, "little")
        return self.call(_CREATE_RULESET, attributes, len(attributes), 0)

    def allow(self, rules: int, path: str, allowed: int) -> None:
        try:
            place = os.open(path, os.O_PATH | os.O_CLOEXEC)
        except OSError:
            return  # what is not there needs no rule
        if os.fstat(place).st_mode & 0o170000 != 0o040000:
            allowed &= self.job["of_files"]
        beneath = (allowed & self.job["handled"]).to_bytes(8, "little") + place.to_bytes(4, "little")
        try:
            self.call(_ADD_RULE, rules, _PATH_BENEATH, beneath, 0)
        finally:
            os.close(place)

    def restrict(self, rules: int) -> None:
        self.call(_RESTRICT_SELF, rules, 0)
        os.close(rules)

    def filter(self, program: bytes) -> None:
        kind: Any = type("Program", (_ctypes.Array,), {"_type_": _Character, "_length_": len(program)})
        held = kind.from_buffer_copy(program)
        # struct sock_fprog: the number of instructions, padded, and where they stand
        described = (len(program) // 8).to_bytes(8, "little") + _ctypes.addressof(held).to_bytes(8, "little")
        if self.prctl(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, described) != 0:
            error = _ctypes.get_errno()
            raise OSError(error, f"seccomp: {os.strerror(error)}")


def _given(values: tuple[int | bytes, ...]) -> list[Any]:
    """Numbers as wide as the machine's; bytes are handed over by where they stand."""
    return [_Long(value) if isinstance(value, int) else value for value in values]
