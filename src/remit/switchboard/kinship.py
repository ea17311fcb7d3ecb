"""Whether a process belongs to a delegation: its process tree, as the kernel tells it. What a process says of itself counts for nothing.

A delegation in processes of its own has a supervisor, which carries its mark and adopts every orphan below it: whoever belongs to it is
found below that supervisor, whatever it forked, left or daemonised. The topmost mark on the way up counts, so that a process lower down
cannot pretend to another one. Agents on our loop and on threads have this process alone.
"""

from dataclasses import dataclass

from remit.system.processes import has_proc, look, mark_of, process_start

ZYGOTE = "zygote"
_LEVELS = 4096
_LOOKS = 3
"""A process on the way up may end while we look."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kin:
    """What is known of the processes of one delegation."""

    session_id: str
    owner_pid: int
    mark_prefix: str
    """What the marks of all of the owner's processes begin with."""
    has_own_processes: bool
    carrier: tuple[int, str] | None
    """The process that carries it out for us, where another does."""


def is_kin(pid: int | None, kin: Kin) -> bool:
    """Whether `pid` may speak for the delegation. Blocking: a few reads of /proc."""
    if pid is None or not has_proc():
        return True  # a system that does not tell: the secret alone must do
    way = _way_up(pid, kin.owner_pid)
    if way is None:
        return False
    if kin.carrier is not None:
        return kin.carrier[0] in way and process_start(kin.carrier[0]) == kin.carrier[1]
    belongs_to = _owner_of(way, kin.mark_prefix)
    return not kin.has_own_processes if belongs_to is None else belongs_to == kin.session_id


def _way_up(pid: int, owner_pid: int) -> list[int] | None:
    """From `pid` up to the owner, both included; None: it does not descend from it."""
    for _ in range(_LOOKS):
        way = [pid]
        while way[-1] != owner_pid and len(way) < _LEVELS:
            process = look(way[-1])
            if process is None or process.parent <= 0:
                break
            way.append(process.parent)
        if way[-1] == owner_pid:
            return way
    return None


def _owner_of(way: list[int], mark_prefix: str) -> str | None:
    """None: nobody's but the owner's own, as what an agent on our loop starts."""
    found: str | None = None
    for pid in reversed(way[:-1]):
        mark = mark_of(pid)
        if mark is not None and mark.startswith(mark_prefix):
            found = mark.removeprefix(mark_prefix)
            if found != ZYGOTE:
                return found
    return found  # below a zygote and below no supervisor: one that killed its own, which makes it nobody's
