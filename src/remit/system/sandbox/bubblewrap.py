"""The command line of bubblewrap: its own namespaces, a root folder with only what interpreters need, no capability.

An ordinary user gets a user namespace. Root gets none: the keeper, first process inside, changes to an unused user id, because process
limits do not apply to root, and root's files would otherwise belong to the code."""

import contextlib
import errno
import os
import stat
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from remit.system.sandbox import recipes
from remit.system.sandbox.identity import changes_user
from remit.system.sandbox.profile import Profile
from remit.system.sandbox.recipes import Limits

WORKSPACE, TEMPORARY, SHARED_MEMORY = "/workspace", "/tmp", "/dev/shm"
MOUNTS = (WORKSPACE, TEMPORARY, SHARED_MEMORY)
"""Each is in memory with a limited size; together they are monitored."""
PIN = "--ro-bind-fd"
"""Since 0.10, and in older versions with the fix of CVE-2024-42472."""
LOADER = "LD_"
"""Prefix of variables for finding and loading libraries."""
_NOBODY = "65534"
_KERNEL = tuple(f"/proc/{name}" for name in ("acpi", "fs", "scsi", "sys", "sysrq-trigger"))
"""Machine settings: root's files, which root may write without any capability."""


def box_profile(limits: Limits, hidden: Iterable[Path] = (), *, network: bool = False) -> Profile:
    """For untrusted code: a workspace in memory, and only what interpreters need. `hidden` stays invisible even inside a visible folder."""
    visible = (*map(Path, recipes.SYSTEM_FOLDERS), *recipes.folders())
    return Profile(
        workspace=Path(WORKSPACE),
        home=Path(WORKSPACE),
        read_only=recipes.folders(),
        hidden=tuple(secret for secret in hidden if any(secret.is_relative_to(path) for path in visible)),
        network=network,
        temporary_bytes=limits.disk_bytes,
        files=recipes.SYSTEM_FILES + (recipes.NETWORK_FILES if network else ()),
    )


def enclose(
    program: Path,
    profile: Profile,
    pins: Mapping[Path, int],
    *,
    locks_namespaces: bool,
    filter_fd: int | None = None,
    has_keeper: bool = False,
) -> list[str]:
    """Up to the program inside, which has no capability. `pins`: see `pinned`; bubblewrap inherits these descriptors and closes them.
    `filter_fd`: an open file with a seccomp program. `has_keeper`: the program is the keeper, which changes from root to an unused user.

    An ordinary user gets a user namespace with the same id; root needs none."""
    argv = [str(program), "--die-with-parent", "--new-session", "--hostname", "sandbox", "--cap-drop", "ALL"]
    argv += ["--unshare-ipc", "--unshare-pid", "--unshare-uts", "--unshare-cgroup-try", *([] if profile.network else ["--unshare-net"])]
    if not changes_user():
        uid, gid = (_NOBODY, _NOBODY) if has_keeper else (str(os.getuid()), str(os.getgid()))
        argv += ["--unshare-user", "--uid", uid, "--gid", gid, *(["--disable-userns"] if locks_namespaces else [])]
    elif has_keeper:
        argv += ["--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID", "--cap-add", "CAP_SETPCAP"]
    elif profile.workspace.stat().st_uid != 0:  # root over a user's files, in a container
        argv += ["--cap-add", "CAP_DAC_OVERRIDE", "--cap-add", "CAP_FOWNER"]
    argv += ["--as-pid-1"] if has_keeper else []
    argv += ["--proc", "/proc", "--dev", "/dev"]
    for name in _KERNEL if os.geteuid() == 0 else ():
        argv += ["--ro-bind-try", name, name]
    if has_keeper:
        above = {folder for path in (*profile.read_only, *map(Path, profile.files)) for folder in path.parents}
        for folder in sorted(above - {Path("/"), *map(Path, MOUNTS)}):
            argv += ["--perms", "0755", "--dir", str(folder)]  # created by bubblewrap itself, they would be closed to the user
    for _, mount in sorted(_mounts(profile, pins).items(), key=lambda one: len(one[0].parts)):
        argv += mount
    for place in (*(path for path in profile.hidden if path.is_dir()), *profile.reserved, Path("/dev"), Path("/")):
        argv += ["--remount-ro", str(place)]
    argv += ["--seccomp", str(filter_fd)] if filter_fd is not None else []
    return [*argv, "--chdir", str(profile.workspace), "--"]


def inner_environment(argv: list[str], environ: Mapping[str, str]) -> tuple[list[str], dict[str, str]]:
    """The command line and environment of bubblewrap. The loader's variables are only for the program inside: bubblewrap itself runs
    outside and would load libraries that an agent left in the workspace."""
    inner = [word for name, value in environ.items() if name.startswith(LOADER) for word in ("--setenv", name, value)]
    return [*argv[:1], *inner, *argv[1:]], {name: value for name, value in environ.items() if not name.startswith(LOADER)}


@contextlib.contextmanager
def pinned(profile: Profile) -> Iterator[dict[Path, int]]:
    """The mounts in writable places, open until bubblewrap has mounted them: the `pins` of `enclose`.

    By name, such a path could be swapped meanwhile for a link to something hidden: another process may work in the same workspace. Raises
    `OSError` if one was already swapped."""
    places = (profile.workspace, *profile.writable)
    pins: dict[Path, int] = {}
    with contextlib.ExitStack() as stack:
        for path in (*profile.read_only, *profile.writable):
            if any(path != place and path.is_relative_to(place) for place in places):
                pins[path] = os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
                stack.callback(os.close, pins[path])
                if stat.S_ISLNK(os.fstat(pins[path]).st_mode) or os.readlink(f"/proc/self/fd/{pins[path]}") != str(path):
                    raise OSError(errno.ELOOP, "It leads elsewhere", str(path))
        yield pins


def _mounts(profile: Profile, pins: Mapping[Path, int]) -> dict[Path, list[str]]:
    """By mount point."""
    mounts = {Path(folder): _system(Path(folder)) for folder in recipes.SYSTEM_FOLDERS}
    mounts |= {Path(name): ["--ro-bind-try", name, name] for name in profile.files}
    own = "1777" if profile.home == profile.workspace else "0700"  # the keeper changes its user
    for place, rights in ((Path(TEMPORARY), "1777"), (Path(SHARED_MEMORY), "1777"), (profile.home, own)):
        mounts[place] = ["--perms", rights, "--size", str(profile.temporary_bytes), "--tmpfs", str(place)]
    mounts |= {path: ["--ro-bind-try", str(path), str(path)] for path in profile.read_only}
    bound = () if profile.home == profile.workspace else (profile.workspace,)
    mounts |= {path: ["--bind", str(path), str(path)] for path in (*bound, *profile.writable)}
    mounts |= {path: ["--bind-fd" if path in profile.writable else PIN, str(number), str(path)] for path, number in pins.items()}
    mounts |= {path: ["--tmpfs", str(path)] if path.is_dir() else ["--ro-bind", "/dev/null", str(path)] for path in profile.hidden}
    return mounts | {path: ["--tmpfs", str(path)] for path in profile.reserved}


def _system(folder: Path) -> list[str]:
    if folder.is_symlink():
        return ["--symlink", os.readlink(folder), str(folder)]
    return ["--ro-bind", str(folder), str(folder)] if folder.is_dir() else []
