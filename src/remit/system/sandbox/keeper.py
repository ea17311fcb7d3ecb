"""Runs inside the sandbox, before the code and beside it. The keeper drops its rights, starts the code in its own process, monitors the
resources of all its processes, ends them, and returns their files.

Python code runs in a fork of this interpreter. `boxes` compiles this module and sends it in, since the package is not visible inside, so it
imports only a small part of the standard library: every run pays for each import. The keeper reports in lines on a pipe (see `run`). End
of file on its standard input means that the caller is gone."""

from __future__ import annotations

import ctypes
import gc
import os
import select
import sys
import time
from resource import RLIMIT_AS, RLIMIT_CORE, RLIMIT_DATA, RLIMIT_FSIZE, RLIMIT_NOFILE, RLIMIT_NPROC, setrlimit

TYPE_CHECKING = False  # `typing` itself would double its start time
if TYPE_CHECKING:
    from typing import Any, NoReturn

TICK_SECONDS = 0.05
DISK_TICKS = 4
"""Folders are scanned less often than processes: it costs more."""
STOP_OUTPUT = b"O"
SPARE_BYTES = 256 << 20
"""Address space beyond the memory limit: programs reserve memory that they never touch."""
MOST_LISTED = 10_000
MOST_RETURNED = 100
"""Files that are sent back."""
DEEPEST = 32
SIGKILL = 9
BEYOND_COUNTING = 1 << 62
"""More bytes than any limit."""
DEEPEST_COUNTED = 100
"""Deeper folders only hide something; each level takes an open file of the keeper."""
MAPS_BYTES = 16 << 20
"""For all mapping lists together; one has about 10 KB."""
LEAST_SHARED_BYTES = 8 << 20
"""Minimum that shared memory counts: most of it may have been unmapped between two checks, and is still in use."""
_HELD = (b"VmRSS:", b"VmSwap:", b"VmPTE:", b"HugetlbPages:")
_SIGNS = {b"Rss:": 1, b"Pss:": -1, b"Pss_Shmem:": 1}
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE, _PR_SET_SECCOMP, _PR_CAPBSET_DROP = 1, 4, 22, 24
_PR_SET_CHILD_SUBREAPER, _PR_SET_NO_NEW_PRIVS, _PR_CAP_AMBIENT = 36, 38, 47
_SECCOMP_MODE_FILTER, _CLEAR_ALL, _LAST_CAPABILITY = 2, 4, 63
_CAPABILITIES_OF_SELF = (0x20080522).to_bytes(8, "little")
_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_PATH_BENEATH = 1
_SCOPE_ABSTRACT_SOCKETS, _SCOPE_SIGNALS = 1, 2
_NET_TCP = 3


# ---- processes and folders


def kill(pid: int) -> None:
    try:
        os.kill(pid, SIGKILL)
    except (ProcessLookupError, PermissionError):
        return


def measure_process(pid: int) -> tuple[int, int, int]:
    """Bytes in memory, swapped out, or used by the kernel for page tables; the shared part; threads."""
    held = mapped = threads = 0
    try:
        with open(f"/proc/{pid}/status", "rb") as file:
            for line in file:
                if line.startswith(_HELD):
                    held += int(line.split()[1]) * 1024
                elif line.startswith(b"RssShmem:"):
                    mapped = int(line.split()[1]) * 1024
                elif line.startswith(b"Threads:"):
                    threads = int(line.split()[1])
    except OSError:  # it has ended
        return 0, 0, 0
    return held, mapped, threads


def measure_proportionally(pid: int) -> int:
    """The same bytes, with shared pages divided among processes, without shared memory (see `shared_memory`)."""
    shared = 0
    try:
        with open(f"/proc/{pid}/smaps_rollup", "rb") as file:
            for name, size, *_ in map(bytes.split, file):
                shared += _SIGNS[name] * int(size) * 1024 if name in _SIGNS else 0
    except OSError:
        pass
    return max(0, measure_process(pid)[0] - shared)


def shared_memory(processes: list[int]) -> dict[bytes, int]:
    """Anonymous shared memory by inode: its mapped size. Written pages that are not mapped stay in use."""
    found: dict[bytes, int] = {}
    left = MAPS_BYTES
    for pid in processes:
        try:
            with open(f"/proc/{pid}/maps", "rb") as file:
                text = file.read(left)
        except OSError:
            continue
        left -= len(text)
        if left <= 0:  # so many mappings only prevent the check
            return {b"": BEYOND_COUNTING}
        for line in text.splitlines() if b"/dev/zero (deleted)\n" in text else ():
            if line.endswith(b"/dev/zero (deleted)"):
                ends, _, offset, _, inode, _ = line.split(maxsplit=5)
                low, high = (int(end, 16) for end in ends.split(b"-"))
                found[inode] = max(found.get(inode, 0), int(offset, 16) + high - low)
    return found


def count_sockets(processes: list[int]) -> int:
    """Sockets that are open in these processes."""
    found = set()
    for pid in processes:
        try:
            for number in os.listdir(f"/proc/{pid}/fd"):
                name = os.readlink(f"/proc/{pid}/fd/{number}")
                if name.startswith("socket:"):
                    found.add(name)
        except OSError:
            pass
    return len(found)


def measure_folders(folders: list[str], processes: list[int]) -> tuple[int, int]:
    """Bytes and files in folders, and in files that were deleted and are still open."""
    used = made = 0
    for folder in folders:
        try:
            found = _measure_folder(os.open(folder, _FOLDER), 0)
        except OSError:
            found = BEYOND_COUNTING, 0
        used, made = used + found[0], made + found[1]
    gone: dict[tuple[int, int], int] = {}
    for pid in processes:
        try:
            for number in os.listdir(f"/proc/{pid}/fd"):
                about = os.stat(f"/proc/{pid}/fd/{number}")
                if about.st_nlink == 0 and about.st_mode & 0o170000 == 0o100000:
                    gone[about.st_dev, about.st_ino] = about.st_blocks * 512
        except OSError:
            pass
    return used + sum(gone.values()), made


def _measure_folder(folder: int, depth: int) -> tuple[int, int]:
    """By open folders, never by paths, which can be redirected meanwhile or be too long. `folder` is closed."""
    used = made = 0
    try:
        for entry in list(os.scandir(folder)):
            made += 1
            try:
                used += entry.stat(follow_symlinks=False).st_blocks * 512
                below = os.open(entry.name, _FOLDER, dir_fd=folder) if entry.is_dir(follow_symlinks=False) else -1
            except (FileNotFoundError, NotADirectoryError):
                continue  # it is gone meanwhile
            if below >= 0:
                if depth == DEEPEST_COUNTED:
                    os.close(below)
                    return BEYOND_COUNTING, made
                found = _measure_folder(below, depth + 1)
                used, made = used + found[0], made + found[1]
    except OSError:  # what cannot be counted is too much
        return BEYOND_COUNTING, made
    finally:
        os.close(folder)
    return used, made


def clear(folder: str) -> None:
    """Remove a folder with its content, as far as possible, once no process is left that changes it. However deep it is: every folder in it
    is moved to the top and emptied there."""
    try:
        top = os.open(folder, _FOLDER)
    except OSError:
        return
    unused = os.urandom(8).hex()
    found, count = ["."], 0
    while found:
        name = found.pop()
        try:
            inside = os.open(name, _FOLDER, dir_fd=top)
        except OSError:
            continue
        for entry in list(os.scandir(inside)):
            try:
                if entry.is_dir(follow_symlinks=False):
                    if os.geteuid() != 0:  # root needs no permissions
                        held = os.open(entry.name, _FOLDER | os.O_PATH, dir_fd=inside)
                        os.chmod(f"/proc/self/fd/{held}", 0o700)
                        os.close(held)
                    count += 1
                    os.rename(entry.name, f"{unused}-{count}", src_dir_fd=inside, dst_dir_fd=top)
                    found.append(f"{unused}-{count}")
                else:
                    os.unlink(entry.name, dir_fd=inside)
            except OSError:
                continue
        os.close(inside)
        if name != ".":
            remove_empty(name, top)
    os.close(top)
    remove_empty(folder, None)


def remove_empty(folder: str, place: int | None) -> None:
    try:
        os.rmdir(folder, dir_fd=place)
    except OSError:  # something in it could not be removed
        return


def seal_input(data: bytes) -> int:
    """An open file with `data` that cannot be changed: written data would be memory of no process."""
    import fcntl

    file = os.memfd_create("stdin", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    with open(os.dup(file), "wb") as writing:
        writing.write(data)
    os.lseek(file, 0, os.SEEK_SET)
    fcntl.fcntl(file, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SEAL | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE)
    return file


# ---- confinement


class Confinement:
    def __init__(self, job: dict[str, Any]) -> None:
        self.job = job
        self._library = ctypes.CDLL(None, use_errno=True)

    def prctl(self, option: int, *values: int | bytes) -> int:
        return int(self._library.prctl(option, *_given(values), *_given((0,) * (4 - len(values)))))

    def call(self, number: int, *values: int | bytes) -> int:
        done = int(self._library.syscall(*_given((number, *values))))
        if done < 0:
            error = ctypes.get_errno()
            raise OSError(error, f"system call {number}: {os.strerror(error)}")
        return done

    def give_up_rights(self) -> None:
        """The keeper: an ordinary user without capabilities, which no process in the sandbox can inspect."""
        uid = self.job["uid"]
        if os.geteuid() == 0:
            for capability in range(_LAST_CAPABILITY + 1):
                self.prctl(_PR_CAPBSET_DROP, capability)
        if uid:
            os.setgroups([])
            os.setresgid(uid, uid, uid)
            os.setresuid(uid, uid, uid)
        self._library.capset(_CAPABILITIES_OF_SELF, bytes(24))  # those that programs would inherit
        if not self.job.get("is_program") and (os.getuid() == 0 or os.geteuid() == 0):
            raise PermissionError("the sandbox would run as root")
        self.prctl(_PR_CAP_AMBIENT, _CLEAR_ALL)
        if self.prctl(_PR_SET_NO_NEW_PRIVS, 1) != 0:
            raise OSError(ctypes.get_errno(), "no_new_privs")
        self.prctl(_PR_SET_CHILD_SUBREAPER, 1)
        if os.getpid() == 1:  # otherwise it must outlive its parent for a moment, to end the others
            self.prctl(_PR_SET_PDEATHSIG, SIGKILL)
        self.prctl(_PR_SET_DUMPABLE, 0)

    def keeps_signals_in(self) -> bool:
        """A Landlock domain that no signal leaves; tested on the parent before anything relies on it."""
        if self.job["abi"] < 6:
            return False
        self.restrict(self.ruleset(0, 0, _SCOPE_SIGNALS))
        try:
            os.kill(os.getppid(), 0)
        except PermissionError:
            return True
        return False

    def show(self) -> None:
        """In the code's process: only the keeper may inspect it."""
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
        if self.job.get("is_program") and os.readlink(f"/proc/self/fd/{place}") != path:  # it was swapped for a link meanwhile
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
        held = ctypes.create_string_buffer(program, len(program))
        # struct sock_fprog: the number of instructions, padded, and their address
        described = (len(program) // 8).to_bytes(8, "little") + ctypes.addressof(held).to_bytes(8, "little")
        if self.prctl(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, described) != 0:
            error = ctypes.get_errno()
            raise OSError(error, f"seccomp: {os.strerror(error)}")


def _given(values: tuple[int | bytes, ...]) -> list[Any]:
    """Machine-sized numbers; bytes are passed by address."""
    return [ctypes.c_long(value) if isinstance(value, int) else value for value in values]


# ---- Python code


def run_python(job: dict[str, Any]) -> None:
    """Run the code as `__main__` in this process, as if the interpreter had been started for it."""
    import _sitebuiltins
    import builtins

    path = f"{job['workspace']}/{job['script']}"
    module = type(sys)("__main__")
    module.__dict__.update(__file__=path, __builtins__=builtins, __cached__=None)
    sys.modules["__main__"] = module
    sys.argv[:] = [path]
    sys.path.insert(0, job["workspace"])
    for name in ("exit", "quit"):  # what `site` does
        setattr(builtins, name, _sitebuiltins.Quitter(name, "Ctrl-D (i.e. EOF)"))
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    try:
        exec(compile(dict(job["files"])[job["script"]], path, "exec", dont_inherit=True), module.__dict__)
    except SystemExit:
        raise
    except BaseException as error:  # noqa: BLE001 - any exception of the code is shown as the interpreter would, without our frames
        trace = error.__traceback__
        while trace is not None and trace.tb_frame.f_code.co_filename != path:
            trace = trace.tb_next
        sys.excepthook(type(error), error.with_traceback(trace), trace)
        sys.exit(1)


# ---- the keeper


class Keeper:
    def __init__(self, job: dict[str, Any]) -> None:
        self.job = job
        self.limits: dict[str, Any] = job["limits"]
        self.hits: set[str] = set()
        self.killed = ""
        self.peak = 0
        self.shared: dict[bytes, int] = {}
        self.made: dict[str, int] = {}
        self.is_first = os.getpid() == 1
        self.is_alone = False
        """Whether a signal to all processes reaches only those started in here."""

    def say(self, line: str) -> None:
        self.say_bytes(line.encode() + b"\n")

    # ---- before the code

    def prepare(self) -> None:
        job = self.job
        confinement = Confinement(job)
        confinement.give_up_rights()
        self.is_alone = self.is_first or bool(job["uid"]) or confinement.keeps_signals_in()
        os.chdir(job["workspace"])
        for name, content in job["files"]:
            folder = os.path.dirname(name)
            if folder:
                os.makedirs(folder, exist_ok=True)
            with open(name, "wb") as file:
                file.write(content)
            self.made[name] = os.stat(name).st_ctime_ns
        self.made[job["script"]] = -1
        self.confinement = confinement

    def start(self) -> int:
        """The code's process; in that process it does not return but runs the code."""
        stdin = seal_input(self.job["stdin"])
        os.set_blocking(0, False)
        self.say("S")
        gc.freeze()  # existing objects need not be scanned for garbage in the fork
        child = os.fork()
        if child:
            os.close(stdin)
            for stream in (1, 2):  # only the code has them: its output ends with it
                os.dup2(self.job["report"], stream)
            return child
        os.dup2(stdin, 0)
        os.setsid()
        try:
            self.confinement.show()
            self.join_group()
            self.bound()
            self.confinement.confine()
        except OSError as error:  # the code must not run in an incomplete sandbox
            self.refuse(error)
            os._exit(125)
        self.close_all(keep=self.job["keep"])
        return 0

    def join_group(self) -> None:
        try:
            if self.job["group"] is not None:
                os.write(self.job["group"], b"0")
        except OSError:
            pass  # its usage is counted nevertheless

    def refuse(self, error: OSError) -> None:
        try:
            self.say("X " + " ".join(str(error).split()))
        except OSError:
            return  # the caller is gone

    @staticmethod
    def close_all(keep: list[int]) -> None:
        lowest = 3
        for kept in sorted(keep):
            os.closerange(lowest, kept)
            lowest = kept + 1
        os.closerange(lowest, 1 << 20)

    def bound(self) -> None:
        """Limits per process, enforced by the kernel."""
        limits = self.limits
        os.nice(5)  # the keeper must get its turn, however many processes there are
        try:
            with open("/proc/self/oom_score_adj", "w") as file:
                file.write("1000")  # if the machine runs out of memory, this is expendable
        except OSError:
            pass
        bounded = limits["memory_bytes"] + SPARE_BYTES
        # JavaScript and other programs reserve far more address space than they use: for those, writable memory counts.
        setrlimit(RLIMIT_AS if self.job["argv"] is None else RLIMIT_DATA, (bounded, bounded))
        setrlimit(RLIMIT_NPROC, (self.job["process_limit"], self.job["process_limit"]))
        setrlimit(RLIMIT_FSIZE, (limits["disk_bytes"], limits["disk_bytes"]))
        setrlimit(RLIMIT_NOFILE, (limits["open_files"], limits["open_files"]))
        setrlimit(RLIMIT_CORE, (0, 0))

    # ---- beside the code

    def watch(self, child: int) -> tuple[int, float]:
        """Until the code has ended by itself or by a limit: its wait status, and its duration."""
        began = time.monotonic()
        end = began + self.limits["seconds"]
        events = select.poll()
        events.register(0, select.POLLIN)
        events.register(os.pidfd_open(child), select.POLLIN)
        tick = 0
        status: int | None = None
        while status is None:
            left = min(TICK_SECONDS, max(0.0, end - time.monotonic()))
            heard = {number for number, _ in events.poll(left * 1000)}
            if 0 in heard and not self.killed:
                self.killed = self.read_command()
            status = self.reap(child)
            if status is None and not self.killed:
                tick += 1
                self.killed = "time" if time.monotonic() >= end else self.over(tick)
                if self.killed:
                    events.unregister(0)
                    self.end_all()
                    status = self.reap(child)
        took = time.monotonic() - began
        if os.WIFEXITED(status):
            self.killed = ""  # it was quicker
        self.end_all()
        self.over(0)
        return status, took

    def read_command(self) -> str:
        try:
            word = os.read(0, 1)
        except BlockingIOError:
            return ""
        if word == STOP_OUTPUT:
            self.end_all()
            return "output"
        return self.abandon()

    def abandon(self) -> NoReturn:
        """The caller is gone."""
        self.end_all()
        if self.job["box"]:
            clear(self.job["box"])
        os._exit(1)

    def reap(self, child: int) -> int | None:
        """Reap ended processes; the status of the code itself if it is among them."""
        found = self.job.get("status")
        while found is None:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                break
            if not pid:
                break
            if pid == child:
                found = self.job["status"] = status
        return found

    def end_all(self) -> None:
        """Nothing started in here outlives this. One signal to all cannot be outrun by forking."""
        while True:
            try:
                os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            except ChildProcessError:
                return  # none is left; from here on, their group id may belong to other processes
            if self.is_alone:
                kill(-1)
            else:
                kill(-self.job["child"])  # their group, which the filter does not let them leave
                for pid in self.below():
                    kill(pid)
            pid, status = os.waitpid(-1, 0)
            if pid == self.job["child"]:
                self.job["status"] = status

    def over(self, tick: int) -> str:
        """The limit that they have exceeded together, or empty."""
        processes = self.below()
        resident, mapped, threads = 0, 0, 0
        for pid in processes:
            one = measure_process(pid)
            resident, mapped, threads = resident + one[0], mapped + one[1], threads + one[2]
        if threads >= self.limits["processes"]:
            self.hits.add("processes")
        limit = self.limits["memory_bytes"]
        self.shared = {inode: max(size, self.shared.get(inode, LEAST_SHARED_BYTES)) for inode, size in shared_memory(processes).items()}
        shared = sum(self.shared.values())
        resident += max(0, shared - mapped)
        if resident > limit:  # shared memory is counted once for each: check in detail
            resident = sum(measure_proportionally(pid) for pid in processes) + shared
        resident += self.in_sockets(processes)
        self.peak = max(self.peak, resident)
        if resident > limit:
            return "memory"
        if tick % DISK_TICKS == 0:
            used, made, is_full = self.job_disk(processes)
            if is_full:
                self.hits.add("disk")
            if used > self.limits["disk_bytes"] or made > self.limits["files"]:
                return "disk"
        return ""

    def in_sockets(self, processes: list[int]) -> int:
        """Maximum content of sockets. Counted only if that is too much: an empty socket uses no memory."""
        each = self.job["socket_bytes"]
        try:
            with open("/proc/net/sockstat", "rb") as file:
                count = int(file.readline().split()[-1])
        except (OSError, ValueError):
            count = BEYOND_COUNTING
        if count * each > self.limits["memory_bytes"] and (self.job["network"] or not self.is_first):  # includes others'
            count = count_sockets(processes)
        return count * each if count * each > self.limits["memory_bytes"] else 0

    def below(self) -> list[int]:
        """All processes except the keeper's own."""
        me = os.getpid()
        if self.is_first:
            return [int(name) for name in os.listdir("/proc") if name.isdigit() and name != "1"]
        found, todo = [], [me]
        while todo:
            pid = todo.pop()
            try:
                for task in os.listdir(f"/proc/{pid}/task"):
                    with open(f"/proc/{pid}/task/{task}/children") as file:
                        todo += map(int, file.read().split())
            except OSError:
                pass
            if pid != me:
                found.append(pid)
        return found

    def job_disk(self, processes: list[int]) -> tuple[int, int, bool]:
        """Bytes and files in use, and whether no byte is left."""
        if not self.job["mounts"]:
            room = os.statvfs(self.job["workspace"])
            if room.f_bavail * room.f_frsize < self.job["reserve"]:  # an open file may have no name
                return BEYOND_COUNTING, 0, True
            return (*measure_folders(self.job["own_folders"], processes), False)
        used = made = 0
        is_full = False
        for place in self.job["mounts"]:
            found = os.statvfs(place)
            used += (found.f_blocks - found.f_bfree) * found.f_frsize
            made += found.f_files - found.f_ffree
            is_full = is_full or found.f_bfree == 0
        return used, made, is_full

    # ---- after the code

    def report(self, status: int, took: float) -> None:
        exit_code = os.WEXITSTATUS(status) if os.WIFEXITED(status) else -1
        ended_by = os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
        hits = ",".join(sorted(self.hits)) or "-"
        self.say(f"E {exit_code} {ended_by} {int(took * 1000)} {self.killed or '-'} {hits} {self.peak}")
        found = self.left()
        if found:
            import re  # only now: each run would pay for it
        kept, room, left = 0, self.limits["disk_bytes"], 0
        for name, size in found:
            if re.match(self.job["outputs"], name) and kept < MOST_RETURNED and size <= room and self.hand_out(name, size):
                kept, room = kept + 1, room - size
            else:
                left += 1
        self.say(f". {left}")

    def left(self) -> list[tuple[str, int]]:
        """New or changed regular files, by name, at most so many; no process is left that could change them."""
        found: list[tuple[str, int]] = []
        for folder, folders, files in os.walk("."):
            folders[:] = [] if folder.count("/") == DEEPEST else [name for name in folders if not name.startswith("__pycache__")]
            for path in (f"{folder}/{name}"[2:] for name in files):
                if len(found) < MOST_LISTED and (size := self.size_if_new(path)) >= 0:
                    found.append((path, size))
        return sorted(found)

    def size_if_new(self, name: str) -> int:
        """-1: a link or device, a file that existed before and is unchanged, or a path that is too long."""
        try:
            about = os.stat(name, follow_symlinks=False)
        except OSError:
            return -1
        is_new = about.st_mode & 0o170000 == 0o100000 and self.made.get(name, 0) not in (about.st_ctime_ns, -1)
        return about.st_size if is_new else -1

    def hand_out(self, name: str, size: int) -> bool:
        try:
            os.chmod(name, 0o600)  # the code may have removed its own read permission
            file = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        except OSError:
            return False
        self.say(f"F {size} {os.fsencode(name).hex()}")
        while size:
            part = os.read(file, min(size, 1 << 18)) or bytes(min(size, 1 << 18))
            self.say_bytes(part)
            size -= len(part)
        os.close(file)
        return True

    def say_bytes(self, data: bytes) -> None:
        while data:
            data = data[os.write(self.job["report"], data) :]


def main(job: dict[str, Any]) -> None:
    keeper = Keeper(job)
    try:
        keeper.prepare()
        child = job["child"] = keeper.start()
    except OSError as error:
        keeper.refuse(error)
        keeper.abandon()
    if child:
        try:
            status, took = keeper.watch(child)
            if job.get("is_program"):  # its files are the workspace's own: the keeper ends like it
                clear(job["box"])
                os._exit(os.waitstatus_to_exitcode(status) if os.WIFEXITED(status) else 128 + os.WTERMSIG(status))
            keeper.report(status, took)
            os._exit(0)
        finally:
            keeper.abandon()  # the caller is gone, or the keeper failed: nothing may outlive it
    if job["argv"] is not None:
        os.execve(job["argv"][0], job["argv"], job["environment"])
    run_python(job)
