"""A sandbox in which a person's own tools work: the workspace at its own path, their toolchain read-only, nothing else of their home.

For acceptance commands and contained coding agents. `coder.execute_code` has a stricter one of its own (`boxes`).

    profile = Profile(workspace=folder, read_only=(*toolchain(folder, environment), *git_directories(folder)), hidden=(folder / ".remit",))
    with bubblewrap.pinned(profile) as pins:  # until the program runs
        argv = bubblewrap.enclose(offer.bubblewrap, profile, pins, locks_namespaces=offer.locks_namespaces, filter_fd=fd)
        subprocess.run([*argv, "/bin/sh", "-c", command], pass_fds=(fd, *pins.values()))

Mounts are made from the outermost path to the innermost, so a deeper path may always be writable, read-only or hidden inside another.
Anything found through a file in the workspace (`.venv`, `.git`) is checked first: an agent may have written that file.
"""

import contextlib
import fcntl
import glob
import os
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from remit.core.errors import Unavailable
from remit.core.protected_paths import Protection, protection_of
from remit.system.artifact_files import read_bounded
from remit.system.beneath import open_folder
from remit.system.files import private_folder
from remit.system.git import Git, GitFailed
from remit.system.sandbox.recipes import NETWORK_FILES, SYSTEM_FILES, SYSTEM_FOLDERS

TEMPORARY = "/tmp"
VISIBLE_FILES = (*SYSTEM_FILES, *NETWORK_FILES, "/etc/passwd", "/etc/group", "/etc/protocols", "/etc/os-release", "/etc/ld.so.conf")
_TEXT_BYTES = 1 << 16
_GIT_SECONDS = 20.0
_PARTS = ("bin", "lib", "lib64", "libexec", "include")
"""Parts of an installation below a prefix. Not `share`: in `~/.local` that contains private data."""
_TOOLCHAINS = (
    ("PYENV_ROOT", ".pyenv", ()),
    ("UV_PYTHON_INSTALL_DIR", ".local/share/uv/python", ()),  # credentials are beside it
    ("UV_TOOL_DIR", ".local/share/uv/tools", ()),
    ("PIPX_HOME", ".local/share/pipx", ("venvs",)),
    ("CONDA_PREFIX", "miniconda3", ()),
    ("HOMEBREW_PREFIX", os.path.join("/home", "linuxbrew", ".linuxbrew"), ()),
    ("NVM_DIR", ".nvm", ()),
    ("VOLTA_HOME", ".volta", ()),
    ("FNM_DIR", ".local/share/fnm", ()),
    ("PNPM_HOME", ".local/share/pnpm", ()),
    ("RBENV_ROOT", ".rbenv", ()),
    ("CARGO_HOME", ".cargo", ("bin", "registry", "git")),  # not credentials.toml
    ("RUSTUP_HOME", ".rustup", ()),
    ("GOROOT", "/usr/local/go", ()),
    ("GOPATH", "go", ("bin", "pkg")),
    ("JAVA_HOME", ".sdkman/candidates", ()),
    ("ASDF_DIR", ".asdf", ()),
    ("ASDF_DATA_DIR", ".asdf", ()),
    ("MISE_DATA_DIR", ".local/share/mise", ("installs", "shims")),
    ("BUN_INSTALL", ".bun", ("bin", "install")),
)
"""The variable with its location, its default, and the needed parts (empty: all)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    workspace: Path
    """Readable and writable, at its own path."""
    home: Path = field(default_factory=Path.home)
    """Empty, writable and removed afterwards, like /tmp; `private_home` chooses it."""
    writable: tuple[Path, ...] = ()
    read_only: tuple[Path, ...] = ()
    """Beside the system's own directories. Must exist."""
    hidden: tuple[Path, ...] = ()
    """Directories and files that appear empty and cannot be written."""
    reserved: tuple[Path, ...] = ()
    """Directories that the program must not create. They exist and are empty, on the host too, during `reserve`."""
    network: bool = False
    """Whether it shares the host's network. Otherwise it has its own loopback interface."""
    files: tuple[str, ...] = VISIBLE_FILES
    """Readable files of the system."""
    temporary_bytes: int = 1 << 30
    """Maximum size of each of home, /tmp and /dev/shm, which are in memory."""


def private_home(workspace: Path) -> Path:
    """The person's home directory, covered by an empty one; another path if that would cover the workspace or the system."""
    home = Path.home()
    is_unfit = home == Path("/") or home.is_relative_to(workspace) or any(home.is_relative_to(folder) for folder in SYSTEM_FOLDERS)
    return Path(TEMPORARY, "home") if is_unfit else home


def toolchain(workspace: Path, environ: Mapping[str, str]) -> tuple[Path, ...]:
    """Installations of the programs on PATH, this interpreter, virtual environments and version managers."""
    home, inside = str(Path.home()), str(workspace)
    named = [
        entry
        for name in ("PATH", "PYTHONPATH", "NODE_PATH", "LD_LIBRARY_PATH")
        for entry in environ.get(name, "").split(os.pathsep)
        if entry
    ]
    named += [part for entry in named if os.path.basename(entry) in ("bin", "sbin") for part in _parts_of(os.path.dirname(entry))]
    named += _parts_of(sys.base_prefix)
    for variable, usual, parts in _TOOLCHAINS:
        root = environ.get(variable) or os.path.join(home, usual)
        named += [os.path.join(root, part) for part in parts] or [root]
    on_path = [os.path.dirname(entry) for entry in environ.get("PATH", "").split(os.pathsep) if os.path.basename(entry) == "bin"]
    on_path = [folder for folder in on_path if os.path.isfile(os.path.join(folder, "pyvenv.cfg"))]
    environments = dict.fromkeys([sys.prefix, environ.get("VIRTUAL_ENV"), *on_path])
    for folder in filter(None, environments):
        named += [path for path in _editable_installs(folder) if path in sys.path or not _is_within(folder, inside)]
    named = [path for path in named if not _is_within(path, inside)]  # the workspace is shown anyway, and may be written
    for folder in filter(None, dict.fromkeys([*environments, f"{inside}/.venv", f"{inside}/venv", f"{inside}/env"])):
        named += _virtual_environment(folder, inside)
    found = dict.fromkeys(path for one in dict.fromkeys(named) for path in (_spellings(one) if not _is_within(one, inside) else (one,)))
    fit = [path for path in found if _is_fit(path, inside, home)]
    # Without those inside another one.
    return tuple(
        Path(path)
        for path in fit
        if not any(path != other and _is_within(path, other) and _is_within(path, inside) == _is_within(other, inside) for other in fit)
    )


def git_directories(workspace: Path) -> tuple[Path, ...]:
    """Git directories of the workspace's repository; for a worktree also those of its main checkout. None above the home directory."""
    above = [workspace, *(folder for folder in workspace.parents if not Path.home().is_relative_to(folder))]
    dot = next((folder / ".git" for folder in above if not unmade_repository(folder)), None)
    if dot is None or dot.is_symlink():
        return ()
    if dot.is_dir():
        return (dot,)
    told = Path(dot.parent, _text(dot).removeprefix("gitdir:").strip()).resolve()
    names_us = Path(told, _text(told / "gitdir").strip()).resolve() == dot.resolve()
    main = told.parent.parent
    is_worktree = names_us and told.parent.name == "worktrees" and (main / "objects").is_dir() and not told.is_relative_to(workspace)
    return (dot, main) if is_worktree else (dot,)


def unmade_repository(workspace: Path) -> tuple[Path, ...]:
    """A missing or empty `.git`: if a program created it, the next git command would run its hooks."""
    dot = workspace / ".git"
    is_empty = dot.is_dir() and not dot.is_symlink() and not os.listdir(dot)
    return (dot,) if is_empty or not os.path.lexists(dot) else ()


def submodules(workspace: Path) -> tuple[Path, ...]:
    """Folders in which git, asked about the workspace, runs another repository's configuration. Blocking: runs git."""
    staged = _git_says(workspace, "ls-files", "--stage", "-z").split(b"\0")
    paths = (workspace / os.fsdecode(entry.partition(b"\t")[2]) for entry in staged if entry.startswith(b"160000 "))
    return tuple(path for path in paths if path.is_dir() and path.resolve() == path)


def hook_folders(workspace: Path) -> tuple[Path, ...]:
    """The folder of git's hooks, if it is in the workspace (`core.hooksPath`). Blocking: runs git."""
    said = os.fsdecode(_git_says(workspace, "rev-parse", "--git-path", "hooks", as_user=True).rstrip(b"\n"))
    path = Path(os.path.normpath(workspace / said)) if said else workspace
    is_ours = path != workspace and path.is_relative_to(workspace) and not path.is_relative_to(workspace / ".git")
    return (path,) if is_ours and path.is_dir() and path.resolve() == path else ()


def _git_says(workspace: Path, *arguments: str, as_user: bool = False) -> bytes:
    """Empty without a repository that git can read."""
    if git_directories(workspace):
        with contextlib.suppress(GitFailed, Unavailable):
            return Git(folder=workspace, stop_at=time.monotonic() + _GIT_SECONDS, as_user=as_user).run(*arguments)
    return b""


def with_git_kept(profile: Profile) -> Profile:
    """Protect the `.git` of submodules and the hooks in the workspace from changes and creation. The folders above are separate mounts, so
    that none can be moved away."""
    fixed = [path for path in profile.read_only if path != profile.workspace]

    def free(paths: Iterable[Path]) -> list[Path]:
        return [path for path in paths if not any(path.is_relative_to(one) for one in fixed)]

    found, hooks = free(submodules(profile.workspace)), free(hook_folders(profile.workspace))
    above = _up_to(profile.workspace, (*found, *(one.parent for one in hooks)))
    unmade = tuple(dot for path in found for dot in unmade_repository(path))
    made = tuple(path / ".git" for path in found if path / ".git" not in unmade)
    return replace(
        profile,
        writable=(*above, *profile.writable),
        read_only=(*profile.read_only, *made, *hooks),
        reserved=(*profile.reserved, *unmade),
    )


def with_state_hidden(profile: Profile, folders: Iterable[Path]) -> Profile:
    """If the workspace contains remit's own folders, like a home directory does, the program neither sees nor replaces them. Raises
    `Unavailable` if one is reached by a link in the workspace, which the program could change. Creates them."""
    hidden: list[Path] = []
    for folder in folders:
        real = folder.resolve()
        if real.is_relative_to(profile.workspace):
            top = next((one for one in folder.parents if one.resolve() == profile.workspace), folder)
            if profile.workspace / folder.relative_to(top) != real:
                raise Unavailable(
                    f"{folder} is in the workspace {profile.workspace}, by a link, and must be hidden from what runs there.",
                    advice="Work in a directory below.",
                )
            hidden.append(private_folder(real))
    above = _up_to(profile.workspace, (one.parent for one in hidden))
    return replace(profile, writable=(*above, *profile.writable), hidden=(*profile.hidden, *hidden)) if hidden else profile


def _up_to(workspace: Path, paths: Iterable[Path]) -> tuple[Path, ...]:
    """The paths and their parent folders, below the workspace."""
    inner = (folder for path in paths for folder in (path, *path.parents))
    return tuple(dict.fromkeys(folder for folder in inner if folder.is_relative_to(workspace) and folder != workspace))


@contextlib.contextmanager
def reserve(folders: Iterable[Path]) -> Iterator[None]:
    """Empty directories while any program needs them: several may run in a workspace, and removing one would uncover it for all."""
    opened: dict[Path, int] = {}
    try:
        for folder in folders:
            folder.mkdir(exist_ok=True)
            opened[folder] = open_folder(folder)
            fcntl.flock(opened[folder], fcntl.LOCK_SH)
        yield
    finally:
        for folder, descriptor in opened.items():
            with contextlib.suppress(OSError):  # another program needs it, or a person has put something there
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                folder.rmdir()
            os.close(descriptor)


def protected_entries(folder: Path, *kinds: Protection) -> list[Path]:
    """Entries of a folder that are protected, or that contain protected files."""
    with os.scandir(folder) as found:
        return [Path(one.path) for one in found if protection_of(one.name, is_link=True) in kinds and not one.is_symlink()]


def _virtual_environment(folder: str, workspace: str) -> Iterator[str]:
    """The environment, and the installation it was created from, by real path: files in the workspace may be an agent's and be swapped at
    any moment."""
    given, folder = folder, os.path.realpath(folder)
    lines = _text(Path(folder, "pyvenv.cfg")).splitlines()
    if not lines:
        return
    yield from (folder,) if _is_within(given, workspace) else (folder, given)
    programs = [os.path.join(folder, "bin", "python")]
    programs += [os.path.join(line.partition("=")[2].strip(), "python") for line in lines if line.startswith("home")]
    with contextlib.suppress(OSError):
        programs.append(os.path.join(folder, "bin", os.readlink(programs[0])))
    for prefix in dict.fromkeys(os.path.dirname(os.path.dirname(path)) for one in programs for path in _spellings(one)):
        if not _enters(prefix, workspace) and glob.glob(f"{glob.escape(prefix)}/lib/python3*/os.py"):
            yield from _parts_of(prefix)


def _editable_installs(folder: str) -> Iterator[str]:
    """Directories that an environment names in `.pth` files."""
    for file in glob.iglob(f"{glob.escape(folder)}/lib/python3*/site-packages/*.pth"):
        yield from (line for line in _text(Path(file)).splitlines() if line.startswith("/"))


def _text(path: Path) -> str:
    """The text of a small regular file; empty for others: an agent may have created a pipe."""
    found = (read_bounded(path, _TEXT_BYTES) or b"").decode(errors="replace")
    return found if "\0" not in found else ""


def _parts_of(prefix: str) -> list[str]:
    return [os.path.join(prefix, name) for name in _PARTS] if prefix != str(Path.home()) else []


def _spellings(path: str) -> tuple[str, str]:
    """The path as given and its real path: both are used by links."""
    given = os.path.normpath(path)
    return given, os.path.realpath(given)


def _is_fit(path: str, workspace: str, home: str) -> bool:
    """It exists, is not part of the system, and shows neither a whole home nor the workspace, which has its own mount."""
    if not path.startswith("/") or any(_is_within(path, folder) for folder in (*SYSTEM_FOLDERS, "/proc", "/dev", "/sys")):
        return False
    if any(_is_within(place, path) for place in (workspace, home, TEMPORARY)) or not os.path.exists(path):
        return False
    return os.path.realpath(path) == path or not _enters(path, workspace)


def _enters(path: str, workspace: str) -> bool:
    """Whether it leads through the workspace: an agent may change a link there at any moment."""
    return any(_is_within(os.path.realpath(one), workspace) for one in (path, *map(str, Path(path).parents)))


def _is_within(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip("/") + "/")
