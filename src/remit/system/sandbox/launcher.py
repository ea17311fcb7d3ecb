"""Runs inside the sandbox: drops its rights, confines itself, and becomes the program.

Without bubblewrap it first forks: the parent stays outside the confinement and ends the program with all its descendants, when it ends or
the caller is gone. `boxes` compiles this module and sends it in, since the package is not visible inside; it imports only a small part of
the standard library, because every run pays for each import."""

import ctypes
import os
import select
import sys
from resource import RLIMIT_AS, RLIMIT_CORE, RLIMIT_DATA, RLIMIT_FSIZE, RLIMIT_NOFILE, RLIMIT_NPROC, setrlimit

TYPE_CHECKING = False  # `typing` itself would double its start time
if TYPE_CHECKING:
    from typing import Any

BOOT = """\
import marshal, sys
with open(int(sys.argv[1]), "rb") as file:
    code, job = marshal.loads(file.read())
launcher = type(sys)("launcher")
exec(code, launcher.__dict__)
launcher.main(job)
"""
"""The start code of the interpreter: an open file has this module, compiled, and the job."""
STARTED = b"S\n"
"""Reported just before the program starts; anything else is why it does not."""
SPARE_BYTES = 256 << 20
"""Address space beyond the memory limit: programs reserve memory that they never touch."""
SIGKILL = 9
_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE, _PR_SET_SECCOMP, _PR_CAPBSET_DROP = 1, 4, 22, 24
_PR_SET_CHILD_SUBREAPER, _PR_SET_NO_NEW_PRIVS, _PR_CAP_AMBIENT = 36, 38, 47
_REQUIRED = (_PR_SET_SECCOMP, _PR_SET_NO_NEW_PRIVS)
_SECCOMP_MODE_FILTER, _CLEAR_ALL, _LAST_CAPABILITY = 2, 4, 63
_CAPABILITIES_OF_SELF = (0x20080522).to_bytes(8, "little")
_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_PATH_BENEATH = 1
_SCOPE_ABSTRACT_SOCKETS, _SCOPE_SIGNALS = 1, 2
_NET_TCP = 3


class _Program(ctypes.Structure):
    """struct sock_fprog"""

    _fields_ = (("instructions", ctypes.c_ushort), ("address", ctypes.c_char_p))


class Confinement:
    def __init__(self, job: "dict[str, Any]") -> None:
        self.job = job
        self._library = ctypes.CDLL(None, use_errno=True)
        self._library.syscall.restype = ctypes.c_long

    def prctl(self, option: int, value: int, data: "Any" = None) -> None:
        if self._library.prctl(option, ctypes.c_ulong(value), data, None, None) != 0 and option in _REQUIRED:
            error = ctypes.get_errno()
            raise OSError(error, f"prctl {option}: {os.strerror(error)}")

    def call(self, number: int, *values: int | bytes) -> int:
        given = [ctypes.c_long(value) if isinstance(value, int) else value for value in values]
        done = int(self._library.syscall(ctypes.c_long(number), *given))
        if done < 0:
            error = ctypes.get_errno()
            raise OSError(error, f"system call {number}: {os.strerror(error)}")
        return done

    def give_up_rights(self) -> None:
        """An ordinary user without capabilities."""
        uid = self.job["uid"]
        if os.geteuid() == 0:
            for capability in range(_LAST_CAPABILITY + 1):
                self.prctl(_PR_CAPBSET_DROP, capability)
        if uid:
            os.setgroups([])
            os.setresgid(uid, uid, uid)
            os.setresuid(uid, uid, uid)
        self._library.capset(_CAPABILITIES_OF_SELF, bytes(24))  # those that programs would inherit
        if not self.job["is_command"] and (os.getuid() == 0 or os.geteuid() == 0):
            raise PermissionError("the sandbox would run as root")
        self.prctl(_PR_CAP_AMBIENT, _CLEAR_ALL)
        self.prctl(_PR_SET_DUMPABLE, 1)  # a change of the user ended that: its usage could not be counted
        self.prctl(_PR_SET_NO_NEW_PRIVS, 1)

    def supervise(self) -> None:
        """Fork, and return only in the child. The parent, which no process in the sandbox can inspect, ends when the child does."""
        self.prctl(_PR_SET_CHILD_SUBREAPER, 1)
        self.prctl(_PR_SET_DUMPABLE, 0)
        child = os.fork()
        if child:
            os._exit(_end_with(child, self.job["control"]))
        os.setsid()
        self.prctl(_PR_SET_DUMPABLE, 1)
        self.prctl(_PR_SET_PDEATHSIG, SIGKILL)

    def confine(self) -> None:
        """Confine the code's process, and by inheritance everything it starts."""
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
            return  # a missing path needs no rule
        if self.job["is_command"] and os.readlink(f"/proc/self/fd/{place}") != path:  # it was swapped for a link meanwhile
            os.close(place)
            return
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
        self.prctl(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, ctypes.pointer(_Program(len(program) // 8, program)))


def _end_with(child: int, control: int) -> int:
    """Wait until the child has ended or the caller is gone, and end all of the child's group, which the filter does not let them leave: one
    signal to a group cannot be outrun by forking."""
    null = os.open("/dev/null", os.O_RDWR)
    for stream in (0, 1, 2):  # only the program has them: its output ends with it
        os.dup2(null, stream)
    events = select.poll()
    for number in (control, os.pidfd_open(child)):
        events.register(number, select.POLLIN)
    events.poll()
    for end in (os.killpg, os.kill):  # the latter before it has a group of its own
        try:  # noqa: SIM105 - contextlib takes longer to import than all the rest
            end(child, SIGKILL)
        except ProcessLookupError:
            pass
    status = 0
    while True:
        try:
            pid, ended = os.waitpid(-1, 0)
        except ChildProcessError:
            return os.WEXITSTATUS(status) if os.WIFEXITED(status) else 128 + os.WTERMSIG(status)
        status = ended if pid == child else status


def _bound(job: "dict[str, Any]") -> None:
    """Limits of the kernel: of each process, and of the control group."""
    if job["group"] is not None:
        try:  # noqa: SIM105 - the same
            os.write(job["group"], b"0")
        except OSError:
            pass  # its usage is counted nevertheless
    limits = job["limits"]
    os.nice(5)
    try:
        with open("/proc/self/oom_score_adj", "w") as file:
            file.write("1000")  # if the machine runs out of memory, this is expendable
    except OSError:
        pass
    memory = limits["memory_bytes"] + SPARE_BYTES
    # JavaScript and other programs reserve far more address space than they use: for those, writable memory counts.
    setrlimit(RLIMIT_AS if job["is_python"] else RLIMIT_DATA, (memory, memory))
    setrlimit(RLIMIT_NPROC, (job["process_limit"], job["process_limit"]))
    setrlimit(RLIMIT_FSIZE, (limits["disk_bytes"], limits["disk_bytes"]))
    setrlimit(RLIMIT_NOFILE, (limits["open_files"], limits["open_files"]))
    setrlimit(RLIMIT_CORE, (0, 0))


def _close_all(keep: list[int]) -> None:
    lowest = 3
    for kept in sorted(keep):
        os.closerange(lowest, kept)
        lowest = kept + 1
    os.closerange(lowest, 1 << 20)


def main(job: "dict[str, Any]") -> None:
    try:
        confinement = Confinement(job)
        confinement.give_up_rights()
        os.chdir(job["workspace"])
        if job["control"] is not None:
            confinement.supervise()
        _bound(job)
        confinement.confine()
        os.write(job["report"], STARTED)
        _close_all(job["keep"])
        if not job["is_python"]:
            os.execve(job["argv"][0], job["argv"], job["environment"])
    except OSError as error:  # the program must not run in an incomplete sandbox
        try:  # noqa: SIM105 - the same
            os.write(job["report"], (" ".join(str(error).split()) + "\n").encode())
        except OSError:
            pass  # the caller is gone
        os._exit(125)
    _run_python(job["argv"][0])


def _run_python(path: str) -> None:
    """Run a script as `__main__` in this process, as if the interpreter had been started for it: a second start would cost more than
    everything else together."""
    import builtins
    import site

    module = type(sys)("__main__")
    module.__dict__.update(__file__=path, __builtins__=builtins)
    sys.modules["__main__"] = module
    sys.argv[:] = [path]
    sys.path.insert(0, os.path.dirname(path))
    site.setquit()
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    try:
        with open(path, "rb") as file:
            code = file.read()
        exec(compile(code, path, "exec", dont_inherit=True), module.__dict__)
    except Exception as error:  # noqa: BLE001 - any exception of the code is shown as the interpreter would, without our frames
        trace = error.__traceback__
        while trace is not None and trace.tb_frame.f_code.co_filename != path:
            trace = trace.tb_next
        sys.excepthook(type(error), error.with_traceback(trace), trace)
        sys.exit(1)
