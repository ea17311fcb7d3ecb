"""Sandboxes: inside bubblewrap, or with Landlock and seccomp only. The command, the launcher's job, the open files.

Each creates a `Box`; `run` starts it. Runs nothing."""

import contextlib
import fcntl
import marshal
import os
import secrets
import socket
import tempfile
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import cache
from pathlib import Path, PurePosixPath
from types import CodeType
from typing import Any, BinaryIO

from remit.core.errors import Misused
from remit.system.files import lock_folder, remove_hostile_folder, sweep_folders
from remit.system.processes import MARK
from remit.system.sandbox import bubblewrap, landlock, launcher, recipes, seccomp
from remit.system.sandbox.cgroup import ControlGroup, make_group
from remit.system.sandbox.identity import changes_user, is_ours, spare_uid
from remit.system.sandbox.probe import Offer, counts_by_namespace, tasks_of
from remit.system.sandbox.profile import TEMPORARY, Profile, reserve
from remit.system.sandbox.recipes import Grants, Limits
from remit.system.threads import off_loop

_DEVICE_RULES = tuple((f"/dev/{name}", landlock.DEVICE) for name in ("null", "zero", "full", "random", "urandom", "tty"))
_PREFIX = "remit-box-"
_LONGEST_NAME = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    language: str
    """As `recipes.language_of` gives it."""
    code: str
    stdin: bytes | None = None
    files: Mapping[str, bytes] = field(default_factory=dict)
    """Initial content of the work folder."""
    limits: Limits = field(default_factory=Limits)
    grants: Grants = field(default_factory=Grants)
    hidden: tuple[Path, ...] = ()
    """Hidden, also inside a system folder."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Box:
    """A sandbox: the command, files to keep open."""

    argv: list[str]
    environment: Mapping[str, str]
    folder: Path | None = None
    """Its working folder; the launcher and bubblewrap change to the work folder themselves."""
    passed: tuple[int, ...] = ()
    control: BinaryIO | None = None
    """Closing it makes the launcher end everything. None: killing the process does."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CodeBox:
    """A box for code, with a work folder of its own."""

    box: Box
    workspace: Path
    folders: tuple[Path, ...]
    """Where its files count as disk."""
    given: Mapping[str, int]
    """Files that were there before: name and time of the last change."""
    uid: int
    stdin: int
    group: ControlGroup | None


@contextlib.asynccontextmanager
async def code_box(job: Job, offer: Offer, report: int) -> AsyncIterator[CodeBox]:
    """A work folder with the code and its files, and the command that runs it. The launcher reports to `report`."""
    recipe = recipes.recipe_for(job.language, job.code, job.limits)
    script = _script_name(recipe.script, job.files)
    files = [*job.files.items(), (script, job.code.encode("utf-8", "surrogatepass"))]
    _check(files, job)
    uid, is_alone = spare_uid(), not offer.has_bubblewrap
    async with _folders(_parent_for(uid), ("workspace", "tmp")) as (folder, workspace, temporary), contextlib.AsyncExitStack() as stack:
        given = {name: _write(workspace, name, content, uid) for name, content in files}
        for place in (workspace, temporary):
            place.chmod(0o700 if is_alone else 0o777)  # bubblewrap has no right to enter a folder of another user
        for place in (workspace, temporary, folder) if uid and is_alone else ():
            os.chown(place, uid, uid)
        inside = (workspace, temporary) if is_alone else (Path(bubblewrap.WORKSPACE), Path(bubblewrap.TEMPORARY))
        orders = _code_orders(job, offer, inside, uid) | {
            "argv": recipe.argv(f"{inside[0]}/{script}"),
            "is_python": not recipe.program,
            "report": report,
        }
        group = make_group(job.limits.memory_bytes + job.limits.disk_bytes)  # its files may be in memory as well
        if group is not None:
            stack.callback(group.remove)
            orders["group"] = stack.enter_context(_closing(group.open()))
        if is_alone and uid and not _is_reachable(recipes.python().prefix):
            orders["keep"] = [stack.enter_context(_closing(os.open(recipes.python().prefix, os.O_PATH)))]
            _reach_interpreter(orders)
        stdin = stack.enter_context(_closing(_sealed(job.stdin) if job.stdin else os.open(os.devnull, os.O_RDONLY)))
        box = stack.enter_context(_launched(orders, offer, job.limits, is_alone=is_alone))
        if offer.bubblewrap is not None and not is_alone:
            bound = {bubblewrap.WORKSPACE: workspace, bubblewrap.TEMPORARY: temporary}
            locks = offer.locks_namespaces
            argv = bubblewrap.command(offer.bubblewrap, job.limits, job.grants, job.hidden, bound, locks_namespaces=locks)
            box = replace(box, argv=[*argv, *box.argv])
        folders = (workspace, temporary)
        yield CodeBox(box=box, workspace=workspace, folders=folders, given={**given, script: -1}, uid=uid, stdin=stdin, group=group)


def _code_orders(job: Job, offer: Offer, inside: tuple[Path, Path], uid: int) -> dict[str, Any]:
    """What code may do. `inside`: its folders, as it sees them."""
    network = (socket.AF_INET, socket.AF_INET6) if job.grants.network else ()
    if offer.has_bubblewrap:  # it limits already what is visible; this makes it read-only
        shown, own = [Path("/")], [*inside, Path(bubblewrap.SHARED_MEMORY)]
        wanted = seccomp.Filter(families=network or (socket.AF_UNIX,))
    else:
        names = recipes.SYSTEM_FOLDERS + recipes.SYSTEM_FILES + (recipes.NETWORK_FILES if job.grants.network else ())
        shown, own = [*landlock.readable([*map(Path, names), *recipes.folders()], job.hidden), *job.grants.read_only], [*inside]
        signals = offer.landlock >= landlock.SCOPES_SINCE
        wanted = seccomp.Filter(families=network, signals=signals, shares_user=not uid, keeps_group=True)
    everything = landlock.everything(offer.landlock)
    rules = [*((str(path), landlock.READ) for path in shown), *((str(path), everything) for path in own)]
    return {
        "workspace": str(inside[0]),
        "environment": _environment(*map(str, inside)),
        "uid": uid,
        "network": job.grants.network,
        "rules": [*rules, *_DEVICE_RULES],
        "filter": seccomp.program(wanted) if offer.seccomp else b"",
    }


def _reach_interpreter(orders: dict[str, Any]) -> None:
    """Through the open folder that is kept: only root can reach the interpreter's path."""
    through, prefix = f"/proc/self/fd/{orders['keep'][0]}", str(recipes.python().prefix)
    orders["environment"]["LD_LIBRARY_PATH"] = f"{through}/lib"
    orders["interpreter"] = str(recipes.python().program).replace(prefix, through, 1)
    orders["rules"] = [(path.replace(prefix, through, 1), rights) for path, rights in orders["rules"]]


@contextlib.contextmanager
def _launched(orders: dict[str, Any], offer: Offer, limits: Limits, *, is_alone: bool) -> Iterator[Box]:
    """The launcher with its job."""
    orders = {
        "limits": asdict(limits),
        "handled": landlock.handled(offer.landlock),
        "of_files": landlock.OF_FILES,
        "abi": offer.landlock,
        "own_pid": seccomp.OWN_PID.to_bytes(4, "little"),
        "process_limit": limits.processes + 1 + (0 if _is_counted_alone(is_alone, orders["uid"]) else tasks_of(os.getuid())),
        "interpreter": str(recipes.python().program),
        "is_command": False,
        "is_python": False,
        "control": None,
        "group": None,
        "keep": [],
        **orders,
    }
    with contextlib.ExitStack() as stack:
        control = None
        if is_alone:
            orders["environment"] = {MARK: f"{_PREFIX}{secrets.token_hex(8)}", **orders["environment"]}
            reading, writing = os.pipe()
            orders["control"] = stack.enter_context(_closing(reading))
            control = stack.enter_context(os.fdopen(writing, "wb", buffering=0))
        job = stack.enter_context(_closing(os.memfd_create("job")))
        os.write(job, marshal.dumps((_compiled(), orders)))
        os.lseek(job, 0, os.SEEK_SET)
        passed = [orders["report"], job, orders["control"], orders["group"], *orders["keep"]]
        argv = [orders["interpreter"], "-I", "-S", "-B", "-X", "utf8", "-c", launcher.BOOT, str(job)]
        yield Box(argv=argv, passed=tuple(one for one in passed if one is not None), environment=orders["environment"], control=control)


def _is_counted_alone(is_alone: bool, uid: int) -> bool:
    """Whether the kernel's process limit counts only the processes of this box."""
    return uid != 0 if is_alone else changes_user() or counts_by_namespace()


@cache
def _compiled() -> CodeType:
    return compile(Path(launcher.__file__).read_bytes(), "<launcher>", "exec", dont_inherit=True, optimize=2)


@contextlib.contextmanager
def _closing(descriptor: int) -> Iterator[int]:
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _sealed(data: bytes) -> int:
    """An open file with `data` that cannot be changed: written data would be memory of no process."""
    file = os.memfd_create("stdin", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    with open(os.dup(file), "wb") as writing:
        writing.write(data)
    os.lseek(file, 0, os.SEEK_SET)
    fcntl.fcntl(file, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SEAL | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE)
    return file


def _write(workspace: Path, name: str, content: bytes, uid: int) -> int:
    """The time of its last change."""
    path = workspace / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    for one in (path, *(folder for folder in path.parents if workspace in folder.parents)) if uid else ():
        os.chown(one, uid, uid)
    return path.stat().st_ctime_ns


def _script_name(wanted: str, taken: Mapping[str, bytes]) -> str:
    stem, dot, ending = wanted.partition(".")
    names = (wanted, *(f"{stem}_{number}{dot}{ending}" for number in range(1, len(taken) + 2)))
    first = {name.partition("/")[0] for name in taken}
    return next(name for name in names if name not in first)


def _check(files: list[tuple[str, bytes]], job: Job) -> None:
    names = {name for name, _ in files}
    for name in names:
        above = {str(folder) for folder in PurePosixPath(name).parents}
        if not is_plain(name) or above & names:
            raise Misused(f"{name!r} cannot be taken in.", advice="Name files below the work folder; a file cannot contain another.")
    if sum(len(content) for _, content in files) > job.limits.disk_bytes:
        raise Misused("The files to take in are larger than the disk of the sandbox.", advice="Take in less, or give it a larger disk.")


def is_plain(name: str) -> bool:
    """Whether it names a file below a folder, and nothing else."""
    path = PurePosixPath(name)
    return (
        0 < len(name.encode("utf-8", "surrogatepass")) <= _LONGEST_NAME
        and not path.is_absolute()
        and path.as_posix() == name
        and all(part not in ("", ".", "..") and len(part.encode("utf-8", "surrogatepass")) <= 255 for part in name.split("/"))
        and name.isprintable()
        and "\\" not in name
    )


@contextlib.asynccontextmanager
async def _folders(parent: str, names: tuple[str, str]) -> AsyncIterator[tuple[Path, Path, Path]]:
    """A folder with two folders in it, removed afterwards."""
    await off_loop(_sweep, parent)
    # Not on a thread: a cancellation meanwhile would lose the folder.
    folder = Path(tempfile.mkdtemp("", _PREFIX, parent))
    lock = lock_folder(folder)
    try:
        inside = [folder / name for name in names]
        for place in inside:
            place.mkdir(mode=0o700)
        yield folder, inside[0], inside[1]
    finally:
        os.close(lock)
        await off_loop(remove_hostile_folder, folder)


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
    most = limits.processes + (0 if _is_counted_alone(False, 0) else tasks_of(os.getuid()))
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
    signals = offer.landlock >= landlock.SCOPES_SINCE
    wanted = seccomp.Filter(families=(), signals=signals, shares_user=True, keeps_files=True, keeps_group=True)
    async with _folders(parent, ("home", "tmp")) as (_, home, temporary):
        with _closing(os.open(os.devnull, os.O_RDWR)) as null:
            orders = {
                "is_command": True,
                "workspace": str(profile.workspace),
                "argv": ["/bin/sh", "-c", f'{_GIT_IDENTITY}; exec /bin/sh -c "$0"', command],
                "environment": {**environ, "HOME": str(home), "TMPDIR": str(temporary)},
                "uid": 0,
                "report": null,
                "network": False,
                "rules": [*landlock.profile_rules(profile, offer.landlock, (home, temporary)), *_DEVICE_RULES],
                "filter": seccomp.program(wanted),
            }
            with _launched(orders, offer, limits, is_alone=True) as box:
                yield replace(box, environment=bubblewrap.inner_environment([], environ)[1])


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


@cache
def _sweep(parent: str) -> None:
    """Remove boxes whose owners were killed early. Once per process is enough."""
    sweep_folders(Path(parent), _PREFIX, is_ours=is_ours, remove=remove_hostile_folder)


def _is_reachable(path: Path) -> bool:
    """Whether any user can reach it."""
    return all(folder.stat().st_mode & 0o005 == 0o005 for folder in (path, *path.parents))
