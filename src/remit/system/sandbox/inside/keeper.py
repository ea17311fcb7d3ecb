"""Runs inside the sandbox, before the code and beside it: the keeper gives up what rights are left, starts the code in a process of its
own, watches what all its processes use, ends them, and hands out the files they leave.

Python code runs in a fork of this very interpreter, so that nothing is started twice. The standard library alone, and little of it: each
import is paid for by every run. Sent in compiled form by `wire`, since the package itself cannot be seen from here. The keeper tells what
happens in lines on a pipe (see `wire`); end of file on its standard input means that whoever wanted this is gone.
"""

from __future__ import annotations

import gc
import os
import select
import time
from resource import RLIMIT_AS, RLIMIT_CORE, RLIMIT_DATA, RLIMIT_FSIZE, RLIMIT_NOFILE, RLIMIT_NPROC, setrlimit

from remit.system.sandbox.inside.confine import Confinement
from remit.system.sandbox.inside.python import run_python
from remit.system.sandbox.inside.usage import BEYOND_COUNTING, clear, kill, looked_at, proportional, sealed, walked

TYPE_CHECKING = False  # `typing` itself would double the time that this takes to start
if TYPE_CHECKING:
    from typing import Any, NoReturn

TICK_SECONDS = 0.05
DISK_TICKS = 4
"""Folders are walked less often than processes are counted: it costs more."""
STOP_OUTPUT = b"O"
SPARE_BYTES = 256 << 20
"""Of address space beyond the limit of memory: programs reserve what they never touch."""
MOST_LISTED = 10_000
DEEPEST = 32


class Keeper:
    def __init__(self, job: dict[str, Any]) -> None:
        self.job = job
        self.limits: dict[str, Any] = job["limits"]
        self.hits: set[str] = set()
        self.killed = ""
        self.peak = 0
        self.made: dict[str, int] = {}
        self.is_first = os.getpid() == 1
        self.is_alone = False
        """Whether a signal to everybody reaches only what was started in here."""

    def say(self, line: str, more: bytes = b"") -> None:
        data = line.encode() + b"\n" + more
        while data:
            data = data[os.write(self.job["report"], data) :]

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
        """The code's process; in that process it does not return but goes on to run the code."""
        stdin = os.open("/dev/null", os.O_RDONLY)
        if self.job["stdin"]:
            stdin = sealed(self.job["stdin"])
        os.set_blocking(0, False)
        self.say("S")
        gc.freeze()  # what is there now need not be looked through for garbage in the fork
        child = os.fork()
        if child:
            os.close(stdin)
            for stream in (1, 2):  # the code alone holds them: what it wrote is over when it is
                os.dup2(self.job["report"], stream)
            return child
        os.dup2(stdin, 0)
        os.setsid()
        try:
            self.confinement.show()
            self.bound()
            self.confinement.confine()
        except OSError as error:  # the code must not run in a sandbox that is open on one side
            self.refuse(error)
            os._exit(125)
        self.close_all(keep=self.job["keep"])
        return 0

    def refuse(self, error: OSError) -> None:
        try:
            self.say("X " + " ".join(str(error).split()))
        except OSError:
            return  # nobody listens any more

    @staticmethod
    def close_all(keep: list[int]) -> None:
        lowest = 3
        for kept in sorted(keep):
            os.closerange(lowest, kept)
            lowest = kept + 1
        os.closerange(lowest, 1 << 20)

    def bound(self) -> None:
        """Limits that the kernel keeps, for each process by itself."""
        limits = self.limits
        os.nice(5)  # the keeper must get its turn however many processes there are
        try:
            with open("/proc/self/oom_score_adj", "w") as file:
                file.write("1000")  # if the machine itself runs out of memory, this is what it can do without
        except OSError:
            pass
        bounded = limits["memory_bytes"] + SPARE_BYTES
        # JavaScript reserves far more address space than it uses, and other programs as well: of those, what they could write to counts.
        setrlimit(RLIMIT_AS if self.job["argv"] is None else RLIMIT_DATA, (bounded, bounded))
        setrlimit(RLIMIT_NPROC, (self.job["process_limit"], self.job["process_limit"]))
        setrlimit(RLIMIT_FSIZE, (limits["disk_bytes"], limits["disk_bytes"]))
        setrlimit(RLIMIT_NOFILE, (limits["open_files"], limits["open_files"]))
        setrlimit(RLIMIT_CORE, (0, 0))

    # ---- beside the code

    def watch(self, child: int) -> tuple[int, float]:
        """Until the code has ended by itself or by a limit: its status as the kernel tells it, and how long it took."""
        began = time.monotonic()
        end = began + self.limits["seconds"]
        events = select.poll()
        events.register(0, select.POLLIN)
        try:  # noqa: SIM105 - contextlib would be one import more
            events.register(os.pidfd_open(child), select.POLLIN)
        except OSError:
            pass  # an old kernel: its end is noticed at the next tick
        tick = 0
        status: int | None = None
        while status is None:
            left = min(TICK_SECONDS, max(0.0, end - time.monotonic()))
            heard = {number for number, _ in events.poll(left * 1000)}
            if 0 in heard and not self.killed:
                self.killed = self.told()
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

    def told(self) -> str:
        try:
            word = os.read(0, 1)
        except BlockingIOError:
            return ""
        if word == STOP_OUTPUT:
            self.end_all()
            return "output"
        return self.abandon()

    def abandon(self) -> NoReturn:
        """Whoever wanted this is gone."""
        self.end_all()
        if self.job["box"]:
            clear(self.job["box"])
        os._exit(1)

    def reap(self, child: int) -> int | None:
        """Whatever has ended; the status of the code itself if it is among them."""
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
        """Nothing that was started in here outlives this. One signal to everybody cannot be outrun by forking."""
        while True:
            try:
                os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            except ChildProcessError:
                return  # nobody is left; and from here on the number of their group may be somebody else's
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
        """The limit that all of it together has passed, or nothing."""
        processes = self.below()
        resident, threads = 0, 0
        for pid in processes:
            one = looked_at(pid)
            resident, threads = resident + one[0], threads + one[1]
        if threads >= self.limits["processes"]:
            self.hits.add("processes")
        limit = self.limits["memory_bytes"]
        if resident > limit:  # what they share is counted once for each: look closer
            resident = sum(proportional(pid) for pid in processes)
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

    def below(self) -> list[int]:
        """All processes but the keeper's own."""
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
            if room.f_bavail * room.f_frsize < self.job["reserve"]:  # a file can be held open where nobody finds it
                return BEYOND_COUNTING, 0, True
            return (*walked(self.job["own_folders"], processes), False)
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
        found, is_cut = self.left()
        for name, size in found:
            self.say(f"L {size} {os.fsencode(name).hex()}")
        self.say(f". {int(is_cut)}")
        os.set_blocking(0, True)
        asked = b""
        while not asked.endswith(b"\n"):
            part = os.read(0, 65536)
            if not part:
                self.abandon()
            asked += part
        for index in map(int, asked.replace(STOP_OUTPUT, b"").split()):  # it may have ended by itself when it was to be stopped
            self.hand_out(*found[index])
        self.say("Z")

    def left(self) -> tuple[list[tuple[str, int]], bool]:
        """Regular files that are new or changed, by name; nobody is alive any more who could change them meanwhile."""
        found: list[tuple[str, int]] = []
        folders = [("", 0)]
        seen = 0
        while folders:
            folder, depth = folders.pop()
            try:
                entries = sorted(os.scandir(folder or "."), key=lambda entry: entry.name)
            except OSError:
                continue
            for entry in entries:
                seen += 1
                if seen > MOST_LISTED:
                    return sorted(found), True
                name = f"{folder}/{entry.name}" if folder else entry.name
                if entry.is_dir(follow_symlinks=False):
                    if depth < DEEPEST and not entry.name.startswith("__pycache__"):
                        folders.append((name, depth + 1))
                elif entry.is_file(follow_symlinks=False) and (size := self.size_if_new(name)) >= 0:
                    found.append((name, size))
        return sorted(found), False

    def size_if_new(self, name: str) -> int:
        """-1: it was there before, unchanged, or its path is too long to be looked at."""
        try:
            about = os.stat(name, follow_symlinks=False)
        except OSError:
            return -1
        return about.st_size if self.made.get(name, 0) not in (about.st_ctime_ns, -1) else -1

    def hand_out(self, name: str, size: int) -> None:
        try:
            file = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        except OSError:
            try:
                os.chmod(name, 0o600)  # the code took its own right to read it away
                file = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
            except OSError:
                self.say("D -1")
                return
        self.say(f"D {size}")
        while size:
            part = os.read(file, min(size, 1 << 18)) or bytes(min(size, 1 << 18))
            self.say_bytes(part)
            size -= len(part)
        os.close(file)

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
            keeper.report(*keeper.watch(child))
            os._exit(0)
        finally:
            keeper.abandon()  # nobody listens any more, or the keeper itself is at fault: nothing may outlive it
    if job["argv"] is not None:
        os.execve(job["argv"][0], job["argv"], job["environment"])
    run_python(job)
