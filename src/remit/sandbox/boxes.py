"""Where code is held: inside bubblewrap, or by the keeper alone. What is started, what the keeper is told to refuse, what is opened.

Both ways end in the same `Box`; `run` starts it. Nothing is run here.
"""

import contextlib
import os
import random
import shutil
import socket
import tempfile
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from remit.sandbox import bubblewrap, landlock, recipe, seccomp
from remit.sandbox.limits import Grants, Limits
from remit.sandbox.probe import Offer, counts_by_namespace, tasks_of
from remit.sandbox.wire import BOOT
from remit.system.threads import off_loop

_DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty")
_FIRST_SPARE, _LAST_SPARE = 1_879_048_192, 2_147_483_646
"""User ids that nobody gives out: above those for containers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    language: str
    """As `recipe.language_of` gives it."""
    code: str
    stdin: bytes | None = None
    files: Mapping[str, bytes] = field(default_factory=dict)
    """What is in the work folder when the code starts."""
    limits: Limits = field(default_factory=Limits)
    grants: Grants = field(default_factory=Grants)
    hidden: tuple[Path, ...] = ()
    """Stays out of sight, also where it lies in a folder of the system."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Box:
    """Where it runs: the command, the keeper's orders, what to keep open for it."""

    argv: list[str]
    orders: dict[str, Any]
    uid: int = 0
    passed: tuple[int, ...] = ()
    environment: Mapping[str, str]


def in_bubblewrap(job: Job, offer: Offer) -> Box:
    assert offer.bubblewrap is not None
    families = (socket.AF_INET, socket.AF_INET6) if job.grants.network else (socket.AF_UNIX,)
    own = landlock.everything(offer.landlock)
    is_counted_alone = os.geteuid() == 0 or counts_by_namespace()
    orders = {
        "workspace": bubblewrap.WORKSPACE,
        "mounts": list(bubblewrap.MOUNTS),
        "own_folders": [],
        "box": "",
        "keep": [],
        # What there is to see was chosen by bubblewrap already; this is that nothing of it can be written to.
        "rules": [("/", landlock.READ), *((place, own) for place in bubblewrap.MOUNTS), *((name, landlock.DEVICE) for name in _DEVICES)],
        "filter": seccomp.program(seccomp.Filter(families=families)) if offer.seccomp else b"",
        "process_limit": job.limits.processes + 1 + (0 if is_counted_alone else tasks_of(os.getuid())),
    }
    python = [str(recipe.python().program), *_INTERPRETER]
    argv = bubblewrap.command(offer.bubblewrap, job.limits, job.grants, job.hidden, locks_namespaces=offer.locks_namespaces)
    return Box(argv=argv + python, orders=orders, uid=_spare_uid(), environment=_environment(bubblewrap.WORKSPACE, bubblewrap.TEMPORARY))


@contextlib.asynccontextmanager
async def alone(job: Job, offer: Offer) -> AsyncIterator[Box]:
    """The keeper without bubblewrap: in a folder of its own, made here and removed."""
    uid = _spare_uid()
    folder = Path(await off_loop(tempfile.mkdtemp, "", "remit-box-", _room_for(uid)))
    workspace, temporary = folder / "workspace", folder / "tmp"
    opened: list[int] = []
    try:
        for place in (workspace, temporary):
            place.mkdir(mode=0o700)
        for place in (workspace, temporary, folder) if uid else ():
            os.chown(place, uid, uid)  # the whole box: should we be killed, the keeper removes it
        names = recipe.SYSTEM_FOLDERS + recipe.SYSTEM_FILES + (recipe.NETWORK_FILES if job.grants.network else ())
        shown = landlock.readable([*map(Path, names), *recipe.folders()], job.hidden)
        own = landlock.everything(offer.landlock)
        rules = [*((str(path), landlock.READ) for path in (*shown, *job.grants.read_only)), (str(workspace), own), (str(temporary), own)]
        program = recipe.python().program
        environment = _environment(str(workspace), str(temporary))
        if uid and not _is_reachable(recipe.python().prefix):
            # The interpreter lies where only root gets to: it is reached through an open folder.
            opened.append(os.open(recipe.python().prefix, os.O_PATH))
            prefix = Path(f"/proc/self/fd/{opened[0]}")
            program = prefix / program.relative_to(recipe.python().prefix)
            environment["LD_LIBRARY_PATH"] = str(prefix / "lib")
            rules = [(str(prefix), landlock.READ) if path == str(recipe.python().prefix) else (path, bits) for path, bits in rules]
        families = (socket.AF_INET, socket.AF_INET6) if job.grants.network else ()
        wanted = seccomp.Filter(families=families, signals=offer.landlock >= landlock.SCOPES_SINCE, shares_user=not uid)
        orders = {
            "workspace": str(workspace),
            "mounts": [],
            "own_folders": [str(workspace), str(temporary)],
            "box": str(folder),
            "keep": opened,
            "rules": [*rules, *((name, landlock.DEVICE) for name in _DEVICES)],
            "filter": seccomp.program(wanted),
            "process_limit": job.limits.processes + 1 + (0 if uid else tasks_of(os.getuid())),
        }
        yield Box(argv=[str(program), *_INTERPRETER], orders=orders, uid=uid, passed=tuple(opened), environment=environment)
    finally:
        for number in opened:
            os.close(number)
        await off_loop(_remove, folder)


_INTERPRETER = ("-I", "-S", "-B", "-X", "utf8", "-c", BOOT)


def _environment(workspace: str, temporary: str) -> dict[str, str]:
    """All there is of one inside."""
    return {
        "PATH": recipe.search_path(),
        "HOME": workspace,
        "TMPDIR": temporary,
        "USER": "sandbox",
        "LANG": "C.UTF-8",
        "PYTHONDONTWRITEBYTECODE": "1",
        "MALLOC_ARENA_MAX": "2",  # each thread's own would count as address space
    }


def _spare_uid() -> int:
    """Nobody's user id, another one for each run; 0 unless we are root and have a choice."""
    if os.geteuid() != 0:
        return 0
    ranges = [tuple(map(int, line.split())) for line in Path("/proc/self/uid_map").read_text().splitlines()]
    first, count = max(((inside, count) for inside, _, count in ranges), key=lambda one: one[1])
    last = min(first + count - 1, _LAST_SPARE)
    return random.SystemRandom().randint(max(first + 1, min(_FIRST_SPARE, last - 5000)), last)


def _room_for(uid: int) -> str:
    """A folder for the box that whoever runs the code can get to."""
    usual = tempfile.gettempdir()
    return usual if not uid or _is_reachable(Path(usual)) else "/tmp"


def _is_reachable(path: Path) -> bool:
    """Whether any user gets there."""
    return all(folder.stat().st_mode & 0o005 == 0o005 for folder in (path, *path.parents))


def _remove(folder: Path) -> None:
    def again(function: Callable[..., Any], path: str, _: Any) -> None:
        with contextlib.suppress(OSError):  # the code may have taken its own rights away
            os.chmod(os.path.dirname(path), 0o700, follow_symlinks=False) if os.path.islink(path) else os.chmod(path, 0o700)
            function(path)

    shutil.rmtree(folder, onerror=again)
