"""Sandboxes: inside bubblewrap, or with the keeper only. The command, the keeper's orders, the open files.

Both create a `Box`; `run` starts it. Runs nothing."""

import contextlib
import marshal
import os
import shutil
import socket
import tempfile
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path
from types import CodeType
from typing import Any

from remit.system.files import temporary_folder
from remit.system.processes import MARK
from remit.system.sandbox import bubblewrap, keeper, landlock, recipes, seccomp
from remit.system.sandbox.identity import changes_user, is_ours, spare_uid
from remit.system.sandbox.probe import Offer, counts_by_namespace, tasks_of
from remit.system.sandbox.profile import TEMPORARY, Profile, reserve
from remit.system.sandbox.recipes import Limits
from remit.system.threads import off_loop

_DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty")
_RESERVE_BYTES = 1 << 30
_PREFIX = "remit-box-"
BOOT = """\
import marshal, os, sys
def take(count):
    parts = []
    while count:
        part = os.read(0, min(count, 1 << 20))
        if not part:
            for folder in sys.argv[1:]:
                os.rmdir(folder)
            os._exit(70)
        parts.append(part)
        count -= len(part)
    return b"".join(parts)
code, job = marshal.loads(take(int.from_bytes(take(8), "little")))
keeper = type(sys)("keeper")
exec(code, keeper.__dict__)
keeper.main(job)
"""
"""The start code of the interpreter: the rest comes over its standard input, compiled. Its arguments are folders to remove if that never
comes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    language: str
    """As `recipes.language_of` gives it."""
    code: str
    stdin: bytes = b""
    outputs: Sequence[str] | None = None
    """Patterns of files to return; None: all that are new."""
    files: Mapping[str, bytes] = field(default_factory=dict)
    """Initial content of the work folder."""
    limits: Limits = field(default_factory=Limits)
    network: bool = False
    hidden: tuple[Path, ...] = ()
    """Hidden, also inside a system folder."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Box:
    """A sandbox: the command, the keeper's orders, files to keep open."""

    argv: list[str]
    orders: dict[str, Any] = field(default_factory=dict)
    """Empty: it needs no keeper."""
    uid: int = 0
    passed: tuple[int, ...] = ()
    environment: Mapping[str, str]
    folder: Path | None = None
    """Its working folder; the keeper and bubblewrap change to the work folder themselves."""


def in_bubblewrap(job: Job, offer: Offer) -> Box:
    assert offer.bubblewrap is not None
    families = (socket.AF_INET, socket.AF_INET6) if job.network else (socket.AF_UNIX,)
    own = landlock.everything(offer.landlock)
    is_counted_alone = changes_user() or counts_by_namespace()
    orders = {
        "workspace": bubblewrap.WORKSPACE,
        "mounts": list(bubblewrap.MOUNTS),
        "own_folders": [],
        "box": "",
        "keep": [],
        # bubblewrap already limits what is visible; this makes it read-only.
        "rules": [("/", landlock.READ), *((place, own) for place in bubblewrap.MOUNTS), *((name, landlock.DEVICE) for name in _DEVICES)],
        "filter": seccomp.program(seccomp.Filter(families=families)) if offer.seccomp else b"",
        "process_limit": job.limits.processes + 1 + (0 if is_counted_alone else tasks_of(os.getuid())),
    }
    python = [str(recipes.python().program), *_INTERPRETER]
    profile = bubblewrap.box_profile(job.limits, job.hidden, network=job.network)
    argv = bubblewrap.enclose(offer.bubblewrap, profile, {}, locks_namespaces=offer.locks_namespaces, has_keeper=True)
    return Box(argv=argv + python, orders=orders, uid=spare_uid(), environment=_environment(bubblewrap.WORKSPACE, bubblewrap.TEMPORARY))


@contextlib.asynccontextmanager
async def alone(job: Job, offer: Offer) -> AsyncIterator[Box]:
    """The keeper without bubblewrap: in its own folder, created and removed here."""
    uid = spare_uid()
    async with contextlib.AsyncExitStack() as stack:
        folder, workspace, temporary = await stack.enter_async_context(_box_folder(_parent_for(uid), "workspace"))
        for place in (workspace, temporary, folder) if uid else ():
            os.chown(place, uid, uid)  # the whole box: if this process is killed, the keeper removes it
        opened: list[int] = []
        names = recipes.SYSTEM_FOLDERS + recipes.SYSTEM_FILES + (recipes.NETWORK_FILES if job.network else ())
        shown = landlock.readable([*map(Path, names), *recipes.folders()], job.hidden)
        own = landlock.everything(offer.landlock)
        rules = [*((str(path), landlock.READ) for path in shown), (str(workspace), own), (str(temporary), own)]
        program = recipes.python().program
        environment = {**_environment(str(workspace), str(temporary)), MARK: folder.name}
        if uid and not _is_reachable(recipes.python().prefix):
            # Only root can reach the interpreter's path: it is reached through an open folder.
            opened.append(os.open(recipes.python().prefix, os.O_PATH))
            stack.callback(os.close, opened[0])
            prefix = Path(f"/proc/self/fd/{opened[0]}")
            program = prefix / program.relative_to(recipes.python().prefix)
            environment["LD_LIBRARY_PATH"] = str(prefix / "lib")
            rules = [(path.replace(str(recipes.python().prefix), str(prefix), 1), bits) for path, bits in rules]
        families = (socket.AF_INET, socket.AF_INET6) if job.network else ()
        wanted = seccomp.Filter(families=families, signals=offer.landlock >= landlock.SCOPES_SINCE, shares_user=not uid)
        orders = {
            "workspace": str(workspace),
            "mounts": [],
            "own_folders": [str(workspace), str(temporary)],
            "box": str(folder),
            # Bytes that must stay free on its disk: usage is monitored, and something may be missed.
            "reserve": min(_RESERVE_BYTES, shutil.disk_usage(folder).free // 4),
            "keep": opened,
            "rules": [*rules, *((name, landlock.DEVICE) for name in _DEVICES)],
            "filter": seccomp.program(wanted),
            "process_limit": job.limits.processes + 1 + (0 if uid else tasks_of(os.getuid())),
        }
        argv = [str(program), *_INTERPRETER, str(workspace), str(temporary), str(folder)]
        yield Box(argv=argv, orders=orders, uid=uid, passed=tuple(opened), environment=environment)


@contextlib.asynccontextmanager
async def _box_folder(parent: str, main: str) -> AsyncIterator[tuple[Path, Path, Path]]:
    """A folder for one box, and two in it: `main` and `tmp`. Not made on a thread: a cancellation meanwhile would lose it."""
    with contextlib.ExitStack() as held:
        folder = held.enter_context(temporary_folder(_PREFIX, Path(parent), is_ours=is_ours))
        try:
            for place in (folder / main, folder / "tmp"):
                place.mkdir(mode=0o700)
            yield folder, folder / main, folder / "tmp"
        finally:
            await off_loop(held.close)


@cache
def _compiled() -> CodeType:
    return compile(Path(keeper.__file__).read_bytes(), "<keeper>", "exec", dont_inherit=True, optimize=2)


def message(job: dict[str, Any]) -> bytes:
    body = marshal.dumps((_compiled(), job))
    return len(body).to_bytes(8, "little") + body


def keeper_orders(offer: Offer, limits: Limits) -> dict[str, Any]:
    """Orders for every keeper."""
    return {
        "limits": asdict(limits),
        "handled": landlock.handled(offer.landlock),
        "of_files": landlock.OF_FILES,
        "abi": offer.landlock,
        "own_pid": seccomp.OWN_PID.to_bytes(4, "little"),
        "group": None,
        "socket_bytes": _socket_bytes(),
    }


def _socket_bytes() -> int:
    """Capacity of one socket: it accepts one more message while it is not full."""
    try:
        return 2 * int(Path("/proc/sys/net/core/wmem_default").read_text())
    except (OSError, ValueError):
        return 2 * 212_992


# ---- programs, in a workspace at its own path

_FAMILIES = (socket.AF_UNIX, socket.AF_INET, socket.AF_INET6, socket.AF_NETLINK)
_PRELUDE = """\
ulimit -c 0; ulimit -d {kibibytes}; ulimit -u {processes} || ulimit -p {processes}; echo 500 > /proc/self/oom_score_adj
"""
"""Limits enforced by the kernel. Shells name the process limit differently."""
_GIT_IDENTITY = """printf '[user]\nname = sandbox\nemail = sandbox@localhost\n[safe]\ndirectory = *\n' > ~/.gitconfig"""


@contextlib.asynccontextmanager
async def shell_box(command: str, profile: Profile, offer: Offer, limits: Limits, environ: Mapping[str, str]) -> AsyncIterator[Box]:
    """`/bin/sh -c command` in the profile's workspace. Without bubblewrap there is no loopback, /tmp is elsewhere (`TMPDIR`), and no file
    can be created at the top of a workspace with hidden or read-only parts."""
    if offer.bubblewrap is None or not offer.has_bubblewrap:
        async with _shell_alone(command, profile, offer, limits, environ) as box:
            yield box
        return
    is_counted_alone = changes_user() or counts_by_namespace()
    most = limits.processes + (0 if is_counted_alone else tasks_of(os.getuid()))
    bounds = _PRELUDE.format(kibibytes=limits.memory_bytes >> 10, processes=most)
    script = f'{{ {bounds}{_GIT_IDENTITY}; }} 2> /dev/null; exec /bin/sh -c "$0"'
    wanted = seccomp.Filter(families=_FAMILIES, allows_within=True, keeps_files=True)
    with contextlib.ExitStack() as stack:
        opened = seccomp.open_program(wanted) if offer.seccomp else None
        if opened is not None:
            stack.callback(os.close, opened)
        pins = stack.enter_context(bubblewrap.pinned(profile))
        argv = bubblewrap.enclose(offer.bubblewrap, profile, pins, locks_namespaces=offer.locks_namespaces, filter_fd=opened)
        stack.enter_context(reserve(profile.reserved))
        homes = {"HOME": str(profile.home), "TMPDIR": TEMPORARY}
        passed = (*pins.values(), *([opened] if opened is not None else []))
        argv, outer = bubblewrap.inner_environment(argv, {**environ, **homes})
        yield Box(argv=[*argv, "/bin/sh", "-c", script, command], passed=passed, environment=outer)


@contextlib.asynccontextmanager
async def _shell_alone(command: str, profile: Profile, offer: Offer, limits: Limits, environ: Mapping[str, str]) -> AsyncIterator[Box]:
    if "\0" in command:
        raise ValueError("embedded null byte")
    parent = await off_loop(os.path.realpath, tempfile.gettempdir())
    async with contextlib.AsyncExitStack() as stack:
        folder, home, temporary = await stack.enter_async_context(_box_folder(parent, "home"))
        null = os.open(os.devnull, os.O_RDWR)
        stack.callback(os.close, null)
        orders = {
            "is_program": True,
            "workspace": str(profile.workspace),
            "mounts": [],
            "own_folders": [str(home), str(temporary)],
            "box": str(folder),
            "reserve": 0,
            "keep": [],
            "rules": [*landlock.profile_rules(profile, offer.landlock, (home, temporary)), *((name, landlock.DEVICE) for name in _DEVICES)],
            "filter": seccomp.program(
                seccomp.Filter(families=(), signals=offer.landlock >= landlock.SCOPES_SINCE, shares_user=True, keeps_files=True)
            ),
            "process_limit": limits.processes + 1 + tasks_of(os.getuid()),
            "report": null,
            "files": [],
            "script": "",
            "argv": ["/bin/sh", "-c", f'{_GIT_IDENTITY}; exec /bin/sh -c "$0"', command],
            "network": False,
            "stdin": b"",
            "environment": {**environ, "HOME": str(home), "TMPDIR": str(temporary)},
            **keeper_orders(offer, limits),
            "uid": 0,
        }  # fmt: skip
        argv = [str(recipes.python().program), *_INTERPRETER, str(home), str(temporary), str(folder)]
        yield Box(argv=argv, orders=orders, passed=(null,), environment=bubblewrap.inner_environment([], environ)[1])


_INTERPRETER = ("-I", "-S", "-B", "-X", "utf8", "-c", BOOT)


def _environment(workspace: str, temporary: str) -> dict[str, str]:
    """The complete environment inside."""
    return {
        "PATH": recipes.search_path(),
        "HOME": workspace,
        "TMPDIR": temporary,
        "USER": "sandbox",
        "LANG": "C.UTF-8",
        "PYTHONDONTWRITEBYTECODE": "1",
        "MALLOC_ARENA_MAX": "2",  # each thread's own would count as address space
    }


def _parent_for(uid: int) -> str:
    """A folder that the user of the code can reach."""
    usual = tempfile.gettempdir()
    return usual if not uid or _is_reachable(Path(usual)) else "/tmp"


def _is_reachable(path: Path) -> bool:
    """Whether any user can reach it."""
    return all(folder.stat().st_mode & 0o005 == 0o005 for folder in (path, *path.parents))
