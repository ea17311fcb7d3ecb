"""Workspaces: folders made for one delegation each, as git worktrees or copies of the project; their changes, and merging them back.

`.remit/work/SESSION` is the folder. `.remit/work/.books/SESSION` holds its metadata (`note.json`, written last, and our own git index), out
of the agent's way. Resuming a delegation takes over its metadata. Knows git and files, neither agents nor returns. Blocking: call it off
the event loop.
"""

import contextlib
import json
import os
import re
import shutil
import stat
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

from remit.core.agents import WorkspaceKind
from remit.core.errors import Misused, Unavailable
from remit.core.ids import is_session_id
from remit.core.policy import Effect, PolicyRequest
from remit.core.protected_paths import Protection, is_pyproject, protection_of, remit_table
from remit.runtime.policy_facts import path_facts
from remit.system.beneath import open_folder
from remit.system.files import atomic_write, file_lock
from remit.system.git import BARE, LOCK_WAIT_SECONDS, NO_SUBMODULES, REPOSITORY_LOCK, Git, GitFailed, Settings, held, settings_of
from remit.system.ownership import is_sealed, seal

METADATA = ".books"
METADATA_FILE = "note.json"
LOCK = "lock"
REMOVAL_MARK = "clearing"
"""A file in the metadata of a workspace whose removal has begun: the next process completes it."""
TAKE_OVER_SECONDS = 20.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Workspace:
    root: Path
    """The project's root."""
    session_id: str
    """The delegation it belongs to now."""
    maker: str
    """The delegation it was made for: names folder and branch."""
    kind: WorkspaceKind
    base: str
    """The commit it began from."""
    git_dir: Path
    """The repository's folder that belongs to it: told to git outright."""
    common_dir: Path
    """The repository's own folder: where its lock stands."""
    below: str = ""
    """Where the project's root lies in the repository, for a root that is a sub-folder."""
    made_at: float = 0.0
    """Wall clock, by the file system: what is newer was written in it."""
    host: str = ""
    """Whose workspace it began from, by that one's maker, when its caller worked in one; changes go back there, not to the project."""
    is_dirty: bool = False
    """The project had uncommitted changes when it was made; they are not in it."""
    project_git_dir: str = ""
    """The repository's folder that belongs to the project's own checkout, of which a worktree was made."""
    commands: Mapping[str, str] = field(default_factory=dict)
    """The settings by which git runs commands, as they were when it was made (see `git.held`)."""
    fetching: str = ""
    """The same, of how it fetches."""

    @property
    def top(self) -> Path:
        """The project's own checkout: the root, or what it lies in."""
        return self.root.parents[len(Path(self.below).parts) - 1] if self.below else self.root

    @property
    def tree(self) -> Path:
        """The whole checkout or copy."""
        return work_root(self.root) / self.maker

    @property
    def folder(self) -> Path:
        """Where the agent works."""
        return self.tree / self.below if self.below else self.tree

    @property
    def inside(self) -> str:
        """The same, relative to the project's root."""
        return self.folder.relative_to(self.root).as_posix()

    @property
    def branch(self) -> str:
        return f"remit/{self.maker}" if self.kind is WorkspaceKind.WORKTREE else ""

    @property
    def metadata_folder(self) -> Path:
        return metadata_folder(self.root, self.session_id)

    @property
    def index(self) -> Path:
        return self.metadata_folder / "index"

    @property
    def is_there(self) -> bool:
        """Whether the folder is still one: not removed, not replaced by a link that leads elsewhere."""
        return os.path.realpath(self.folder) == os.path.join(os.path.realpath(self.root), self.inside) and self.folder.is_dir()


def work_root(root: Path) -> Path:
    return root / ".remit" / "work"


def metadata_folder(root: Path, session_id: str) -> Path:
    return work_root(root) / METADATA / session_id


def write_metadata(workspace: Workspace) -> Workspace:
    """From here on it exists."""
    fields = asdict(workspace) | {"git_dir": str(workspace.git_dir), "common_dir": str(workspace.common_dir)}
    del fields["root"]
    fields["seal"] = seal(_sealed_text(workspace))
    atomic_write(workspace.metadata_folder / METADATA_FILE, json.dumps(fields, indent=1).encode(), fsync=False)
    return workspace


def find_workspace(root: Path, session_id: str) -> Workspace | None:
    """The workspace of a delegation, when there is one and its folder is still there."""
    workspace = load_workspace(root, session_id)
    return workspace if workspace is not None and workspace.is_there and not (workspace.metadata_folder / REMOVAL_MARK).exists() else None


def _sealed_text(workspace: Workspace) -> str:
    """What of a note decides where git works and which commands it runs."""
    paths = (workspace.root, workspace.git_dir, workspace.common_dir, workspace.project_git_dir)
    facts = (workspace.maker, workspace.kind, workspace.base, workspace.below, workspace.host, workspace.fetching)
    return json.dumps([*map(str, paths), *facts, sorted(workspace.commands.items())])


def adopt_workspaces(root: Path) -> None:
    """Accept the workspaces that are noted here, as those of a project that was moved or that an older remit worked in."""
    for session_id in list_workspaces(root):
        workspace = load_workspace(root, session_id, is_adopted=True)
        if workspace is not None:
            write_metadata(workspace)


def load_workspace(root: Path, session_id: str, *, is_adopted: bool = False) -> Workspace | None:
    """As its note tells it, whatever has become of its folder. Only a note that was written here: one that came with a clone, or that an
    agent wrote, could name any command for git to run."""
    if not is_session_id(session_id):
        return None
    try:
        fields = json.loads((metadata_folder(root, session_id) / METADATA_FILE).read_bytes())
        fields |= {"git_dir": Path(fields["git_dir"]), "common_dir": Path(fields["common_dir"]), "kind": WorkspaceKind(fields["kind"])}
        found = fields.pop("seal", "")
        workspace = replace(Workspace(root=root, **fields), session_id=session_id)
        is_ours = is_adopted or is_sealed(_sealed_text(workspace), found)
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return None  # none, or damaged: as if it had never been made
    return workspace if is_ours and is_session_id(workspace.maker) else None


def take_over_workspace(root: Path, earlier: str, session_id: str) -> Workspace | None:
    """The workspace of the run that is gone on from. Only one can have it: its metadata is renamed.

    Under its lock: waits for a removal in progress.
    """
    if find_workspace(root, earlier) is None:
        return None
    with contextlib.suppress(OSError, Unavailable), file_lock(metadata_folder(root, earlier) / LOCK, timeout=TAKE_OVER_SECONDS):
        if find_workspace(root, earlier) is not None:
            os.rename(metadata_folder(root, earlier), metadata_folder(root, session_id))
    workspace = find_workspace(root, session_id)
    return None if workspace is None else write_metadata(workspace)


def list_workspaces(root: Path) -> list[str]:
    """The sessions that have metadata here."""
    with contextlib.suppress(OSError):
        return sorted(name for name in os.listdir(work_root(root) / METADATA) if is_session_id(name))
    return []


# ---- changes


TOOL_FOLDERS = frozenset({"node_modules", ".venv", "venv", "__pycache__", ".mypy_cache", ".ruff_cache", ".pytest_cache", ".tox"})
"""Filled by tools, which fill them again."""
_CACHES = tuple(f":(exclude,glob)**/{name}/**" for name in ("__pycache__", ".mypy_cache", ".ruff_cache", ".pytest_cache"))
"""Never part of an agent's work, whether or not the project ignores them."""
DIFF = "changes.diff"
TAKING_SECONDS = 60.0
_SUBMODULE, _LINK = "160000", "120000"
_RAW_DIFF = ("--raw", "-z", "--no-renames", "--no-abbrev")
_PLAIN_DIFF = (
    "--no-color", "--no-ext-diff", "--no-textconv", "--no-relative", "--submodule=short", "--src-prefix=a/", "--dst-prefix=b/",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    changed: tuple[str, ...] = ()
    """Files added, changed or renamed, as they stand in the workspace, relative to its tree."""
    count: int = 0
    """Of files changed, the deleted ones too."""
    diff: Path | None = None
    commit: str | None = None
    """On the workspace's branch; the base itself when nothing changed."""
    warnings: tuple[str, ...] = ()
    doubt: str = ""
    """Why it must not be merged without being looked at: continues "could not be merged: "."""


def take_changes(workspace: Workspace, *, message: str, diff_in: Path | None, seconds: float = TAKING_SECONDS) -> Changes:
    """Write the diff into `diff_in`, commit the changes on the branch, and say what they are. Nothing is removed or merged."""
    with open_git(workspace, seconds=seconds) as git:
        warnings = stage_changes(git)
        entries = list(_entries(git.run("diff", "--cached", *_RAW_DIFF, workspace.base)))
        diff = _write_diff(git, workspace, diff_in) if entries and diff_in is not None else None
        commit = _commit(git, workspace, message) if workspace.kind is WorkspaceKind.WORKTREE else None
    if any(entry.mode == _SUBMODULE for entry in entries):
        warnings += ("A repository inside the workspace is in the diff as a reference only; its files are in the folder.",)
    doubt = "nothing of it could be taken" if warnings and not entries else ""
    if git.overrides:
        names = ", ".join(name for name, _ in git.overrides[:3])
        doubt = f"settings by which git runs commands were changed meanwhile ({names})"
        warnings += (f"Settings by which git runs commands were changed meanwhile, and not used: {names}.",)
    changed = tuple(entry.path for entry in entries if not entry.is_deleted)
    return Changes(changed=changed, count=len(entries), diff=diff, commit=commit, warnings=warnings, doubt=doubt)


@contextlib.contextmanager
def open_git(workspace: Workspace, *, seconds: float) -> Iterator[Git]:
    """Git in the workspace, with our own index, under the workspace's lock."""
    if not workspace.is_there:
        raise Unavailable("The workspace is no longer there: its folder was removed or replaced.", advice="Delegate it again.")
    git = Git(folder=workspace.tree, stop_at=time.monotonic() + seconds, git_dir=workspace.git_dir, index=workspace.index)
    with file_lock(workspace.metadata_folder / LOCK, timeout=max(0.0, seconds)):
        with contextlib.suppress(FileNotFoundError):
            Path(f"{workspace.index}.lock").unlink()  # ours alone: left by a run that was killed
        yield held(git, Settings(workspace.commands, workspace.fetching), base=workspace.base)


def snapshot_commit(workspace: Workspace, *, seconds: float) -> str:
    """A commit of the workspace as it is now, on no branch: the base of a nested workspace."""
    with open_git(workspace, seconds=seconds) as git:
        stage_changes(git)
        return _commit_of(git, workspace, f"{workspace.maker}: as it stood")


def stage_changes(git: Git) -> tuple[str, ...]:
    """Everything as it stands, into our index; what could not be read is a warning."""
    left_out: tuple[str, ...] = _CACHES
    try:
        left_out += tuple(f":(exclude,literal){path}" for path in _stage_repositories(git))
        git.run("add", "--all", "--", ".", *left_out)
    except GitFailed as failed:
        if "not a git repository" in failed.words:
            raise Unavailable(f"What git keeps of the workspace was damaged or removed ({git.git_dir}).") from None
        # A file that cannot be read, a repository without a commit inside: the rest still counts.
        git.run("add", "--all", "--ignore-errors", "--", ".", *left_out, allowed=(0, 1, 128))
        return (f"Not everything is in the diff: {failed.message}",)
    return ()


def _stage_repositories(git: Git) -> list[str]:
    """Stage the repositories inside that the index knows, by their HEAD; their paths. `git add` would ask each for its status, and run
    filters that its own configuration names: that is the agent's."""
    staged = git.run("ls-files", "--stage", "-z").split(b"\0")
    paths = [os.fsdecode(entry.partition(b"\t")[2]) for entry in staged if entry.startswith(_SUBMODULE.encode())]
    changed = [path for path in paths if os.path.lexists(git.folder / path / ".git") or not os.path.isdir(git.folder / path)]
    if changed:
        given = b"".join(os.fsencode(path) + b"\0" for path in changed)
        git.run("update-index", "--add", "--remove", "-z", "--stdin", stdin=given, allowed=(0, 1, 128))
    return paths


class ChangedFile(NamedTuple):
    """A line of a raw diff."""

    path: str
    """Relative to the repository."""
    mode: str
    old_mode: str
    object_id: str
    old_object_id: str
    is_deleted: bool


def _entries(raw: bytes) -> Iterator[ChangedFile]:
    parts = iter(raw.split(b"\0"))
    for head in parts:
        if head:
            old_mode, mode, old, new, status = head.decode().removeprefix(":").split(" ")
            yield ChangedFile(os.fsdecode(next(parts)), mode, old_mode, new, old, status[0] == "D")


def _write_diff(git: Git, workspace: Workspace, folder: Path) -> Path:
    """Whole or not at all, and never over a file of the agent's."""
    draft = workspace.metadata_folder / DIFF
    with open(draft, "wb") as file:
        git.run("diff", "--cached", "--binary", "--find-renames", *_PLAIN_DIFF, workspace.base, stdout=file)
    descriptor = open_folder(folder)
    try:
        for number in range(1, 1000):
            name = DIFF if number == 1 else f"changes-{number}.diff"
            with contextlib.suppress(FileExistsError):
                os.link(draft, name, dst_dir_fd=descriptor)
                return folder / name
    finally:
        os.close(descriptor)
        draft.unlink()
    raise Unavailable(f"{folder} contains a thousand diffs.")


def is_recorded_diff(path: str) -> bool:
    """Whether an artifact is the diff of a workspace, by its name."""
    name = path.rpartition("/")[2]
    return path.startswith(".remit/") and name.startswith("changes") and name.endswith(".diff")


def _commit(git: Git, workspace: Workspace, message: str) -> str:
    """The tree as it stands, on the workspace's branch."""
    commit = _commit_of(git, workspace, message)
    git.run("update-ref", f"refs/heads/{workspace.branch}", commit)
    with contextlib.suppress(OSError):  # afterwards the folder is a clean checkout
        shutil.copy2(workspace.index, workspace.git_dir / "index.remit")
        os.replace(workspace.git_dir / "index.remit", workspace.git_dir / "index")
    return commit


def _commit_of(git: Git, workspace: Workspace, message: str) -> str:
    """Of what is staged; what the agent committed itself stays in its history."""
    tree = git.says("write-tree")
    parent = workspace.base
    with contextlib.suppress(GitFailed):  # a HEAD that leads nowhere, or into another history, is not gone on from
        if git.asks("merge-base", "--is-ancestor", workspace.base, "HEAD"):
            parent = git.says("rev-parse", "--verify", "HEAD^{commit}")
    if git.says("rev-parse", f"{parent}^{{tree}}") == tree:
        return parent
    return git.says("commit-tree", tree, "-p", parent, "-m", message)


# ---- creation


MAKING_SECONDS = 120.0
FILE_TICK_SECONDS = 0.012
"""Files are dated by a clock that moves in ticks; after so long it has moved."""
MOST_BYTES = 512 * 1024 * 1024
MOST_FILES = 50_000
_SKIPPED = TOOL_FOLDERS | {".git", ".hg", ".svn", ".remit"}


def open_workspace(
    root: Path, session_id: str, kind: WorkspaceKind, *, earlier: str | None, seconds: float, host: Workspace | None = None
) -> tuple[Workspace, bool]:
    """The workspace of this delegation, made or found again; and whether it was there before.

    `host`: the workspace that its caller works in. A new one begins from that as it stands, not from the project.

    Raises `Misused` when the project cannot have one, `Unavailable` when git cannot be used or is too slow.
    """
    workspace = find_workspace(root, session_id)
    if workspace is None and earlier is not None:
        workspace = take_over_workspace(root, earlier, session_id)
    if workspace is not None and workspace.kind is kind:
        return workspace, True
    stop_at = time.monotonic() + min(seconds, MAKING_SECONDS)
    tree = work_root(root) / session_id
    (work_root(root) / METADATA / session_id).mkdir(mode=0o700, parents=True, exist_ok=True)
    make = _worktree if kind is WorkspaceKind.WORKTREE else _copy
    workspace = make(root, session_id, tree, stop_at, host)
    workspace.folder.mkdir(parents=True, exist_ok=True)  # a project that stands in no commit yet has no folder there
    mark = workspace.metadata_folder / "made"
    mark.touch()
    workspace = write_metadata(replace(workspace, made_at=mark.stat().st_mtime, host="" if host is None else host.maker))
    time.sleep(FILE_TICK_SECONDS)
    return workspace, False


def _worktree(root: Path, session_id: str, tree: Path, stop_at: float, host: Workspace | None) -> Workspace:
    git = Git(folder=root, stop_at=stop_at)
    try:
        top, common = Path(git.says("rev-parse", "--show-toplevel")), git.says("rev-parse", "--git-common-dir")
    except GitFailed as failed:
        raise _no_repository(root, failed) from None
    base, is_dirty = _head(git) if host is None else (_snapshot(host, stop_at), False)
    common_dir = (root / common).resolve()
    with file_lock(common_dir / REPOSITORY_LOCK, timeout=min(LOCK_WAIT_SECONDS, max(0.0, stop_at - time.monotonic()))):
        clear_worktree(git, session_id, tree)
        git.run("worktree", "add", "--quiet", "--no-track", "-b", f"remit/{session_id}", str(tree), base)
    git_dir = Path(Git(folder=tree, stop_at=stop_at).says("rev-parse", "--absolute-git-dir"))
    settings = settings_of(git) if host is None else host  # a caller that runs may have changed them
    below = os.path.relpath(root.resolve(), top.resolve())
    workspace = Workspace(
        root=root,
        session_id=session_id,
        maker=session_id,
        kind=WorkspaceKind.WORKTREE,
        base=base,
        git_dir=git_dir,
        common_dir=common_dir,
        below="" if below == "." else below,
        is_dirty=is_dirty,
        project_git_dir=git.says("rev-parse", "--absolute-git-dir"),
        commands=settings.commands,
        fetching=settings.fetching,
    )
    shutil.copy2(git_dir / "index", workspace.index)  # with its time: git takes for unchanged only what is older than its index
    return workspace


def _head(git: Git) -> tuple[str, bool]:
    """What the project has committed last, and whether there is more in it."""
    try:
        base = git.says("rev-parse", "--verify", "--quiet", "HEAD^{commit}")
    except GitFailed:
        raise Misused(
            f"{git.folder} is a git checkout without a commit: there is nothing to make a worktree of.",
            advice='Commit something first, or declare the agent with workspace = "copy".',
        ) from None
    more = git.run("status", "--porcelain", "-z", NO_SUBMODULES, "--untracked-files=normal", "--", ":/", ":(exclude,top,glob)**/.remit/**")
    return base, bool(more)


def _snapshot(host: Workspace, stop_at: float) -> str:
    if host.kind is not WorkspaceKind.WORKTREE:
        # Its branch would be in the copy's own repository, and gone with it.
        raise Misused(
            f"The caller works in a copy of the project ({host.inside}), and no worktree can be made of a copy.",
            advice='Declare this agent with workspace = "copy" or "shared", or its caller with workspace = "worktree".',
        )
    return snapshot_commit(host, seconds=stop_at - time.monotonic())


def clear_worktree(git: Git, session_id: str, tree: Path) -> None:
    """What an earlier try left under this name."""
    if not tree.exists() and not git.asks("show-ref", "--verify", "--quiet", f"refs/heads/remit/{session_id}"):
        return
    with contextlib.suppress(GitFailed):
        git.run("worktree", "remove", "--force", "--force", str(tree))
    shutil.rmtree(tree, ignore_errors=True)
    git.run("worktree", "prune")
    with contextlib.suppress(GitFailed):
        git.run("branch", "-D", "--quiet", f"remit/{session_id}")


def _copy(root: Path, session_id: str, tree: Path, stop_at: float, host: Workspace | None) -> Workspace:
    git_dir = work_root(root) / METADATA / f"{session_id}.git"
    for left in (tree, git_dir):
        if left.exists():
            shutil.rmtree(left)
    workspace = Workspace(
        root=root, session_id=session_id, maker=session_id, kind=WorkspaceKind.COPY, base="", git_dir=git_dir, common_dir=git_dir
    )  # fmt: skip
    git = Git(folder=root, stop_at=stop_at)
    if host is not None:
        git = replace(git, folder=host.folder, git_dir=host.git_dir, work_tree=host.tree, index=host.index)
    objects = _objects(git, host)
    _copy_project(git, tree)
    git = Git(folder=tree, stop_at=stop_at)
    git.run("init", "--quiet", "--template=", f"--separate-git-dir={git_dir}", ".")
    if objects is not None:  # what the project's repository holds already is not written again
        (git_dir / "objects" / "info").mkdir(parents=True, exist_ok=True)
        (git_dir / "objects" / "info" / "alternates").write_bytes(os.fsencode(objects) + b"\n")
    git = replace(git, git_dir=git_dir)
    git.using(workspace.index).run("add", "--all", "--force", "--", ".")
    tree_id = git.using(workspace.index).says("write-tree")
    base = git.says("commit-tree", tree_id, "-m", "The project as it was copied")
    git.run("update-ref", "HEAD", base)
    shutil.copy2(workspace.index, git_dir / "index")
    settings = settings_of(git)
    return replace(workspace, base=base, commands=settings.commands, fetching=settings.fetching)


def _objects(git: Git, host: Workspace | None) -> Path | None:
    """Where the project's repository keeps what it holds. A copy's own repository will not do: it goes with that copy."""
    if host is not None and host.kind is WorkspaceKind.COPY:
        with contextlib.suppress(OSError):
            return Path(os.fsdecode((host.git_dir / "objects" / "info" / "alternates").read_bytes().rstrip(b"\n")))
        return None
    with contextlib.suppress(GitFailed):
        return (git.folder / git.says("rev-parse", "--git-path", "objects")).resolve()
    return None


def _no_repository(root: Path, failed: GitFailed) -> Misused:
    if "not a git repository" in failed.words or BARE in failed.words:
        return Misused(
            f"{root} is not a git checkout, so no worktree can be made of it.",
            advice='Run `git init` and commit, or declare the agent with workspace = "copy".',
        )
    return Misused(
        f"git cannot make a worktree of {root}: {failed.message}", advice='Fix that, or declare the agent with workspace = "copy".'
    )


# ---- copying


def _copy_project(git: Git, target: Path) -> None:
    """Copy the folder that `git` stands in to `target`."""
    root = git.folder
    try:
        names = [os.fsdecode(name) for name in git.run("ls-files", "-z", "-co", "--exclude-standard").split(b"\0") if name]
    except GitFailed:
        names = None
    target.mkdir(parents=True)
    _copy_all(root, target, _walk(root) if names is None else dict.fromkeys(names), git.stop_at)


def _copy_all(root: Path, target: Path, names: Iterable[str], stop_at: float) -> None:
    count = size = 0
    for name in names:
        if ".remit" in name.split("/"):
            continue
        try:
            found = os.lstat(root / name)
        except OSError:
            continue  # deleted and not committed, or gone meanwhile
        if not (stat.S_ISREG(found.st_mode) or stat.S_ISLNK(found.st_mode)):
            continue  # a submodule, a pipe, a socket: nothing that can be copied
        count, size = count + 1, size + found.st_size
        if count > MOST_FILES or size > MOST_BYTES:
            raise Misused(
                f"The project is too large to be copied: more than {MOST_FILES} files or {MOST_BYTES >> 20} MiB.",
                advice='Ignore what need not be copied (.gitignore), or declare the agent with workspace = "worktree".',
            )
        if time.monotonic() > stop_at:
            raise Unavailable("The project could not be copied in the time there was.", advice="Give the delegation a longer timeout.")
        _copy_one(root / name, target / name)


def _copy_one(source: Path, target: Path) -> None:
    """With its times: what the agent did not touch is as old as it was."""
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        shutil.copy2(source, target, follow_symlinks=False)
    except FileNotFoundError:
        return  # gone meanwhile
    except OSError as error:
        raise Unavailable(f"{source} could not be copied: {error.strerror or error}.", advice="Make it readable, or ignore it.") from None


def _walk(root: Path) -> Iterator[str]:
    for folder, folders, files in os.walk(root):
        links = [name for name in folders if os.path.islink(os.path.join(folder, name))]
        folders[:] = sorted(name for name in folders if name not in _SKIPPED and name not in links)
        for name in sorted((*files, *links)):
            if name not in _SKIPPED:
                yield os.path.relpath(os.path.join(folder, name), root)


# ---- merging


MERGING_SECONDS = 60.0
NEEDED_GIT = "2.38"
"""The first with `merge-tree --write-tree`."""
_OVERWRITTEN = ("would be overwritten", "not uptodate")
_NO_FILE = "000000"
_UNKNOWN_OPTION = 129
"""How git ends when it does not know what it is asked."""
_QUOTED = re.compile(r"^error: [^']*'([^']+)'", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeResult:
    is_done: bool
    into: str = ""
    """The branch of the project, or the folder of the caller's workspace."""
    conflicts: tuple[str, ...] = ()
    """Files that stand in the way, relative to the repository."""
    reason: str = ""
    """Why it was not done: continues "could not be merged: "."""
    left_out: tuple[str, ...] = ()
    """Files that the policy does not allow its agent to write: they stay on the branch."""


class MergeIntent:
    """Whether a merge may still go on: it can be called off until the moment it touches the checkout, and not after it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._is_called_off = False
        self._has_begun = False

    def call_off(self) -> bool:
        """True: nothing will be merged. False: it is being done, or has been."""
        with self._lock:
            self._is_called_off = not self._has_begun
            return self._is_called_off

    def begin(self) -> bool:
        with self._lock:
            self._has_begun = not self._is_called_off
            return self._has_begun


def merge(workspace: Workspace, commit: str, intent: MergeIntent, *, seconds: float) -> MergeResult:
    """Bring `commit` into the branch that is checked out in the project."""
    seconds = min(seconds, MERGING_SECONDS)
    stop_at = time.monotonic() + seconds
    with file_lock(workspace.common_dir / REPOSITORY_LOCK, timeout=min(LOCK_WAIT_SECONDS, seconds)):
        git = _project(workspace, stop_at)
        if not git.asks("symbolic-ref", "--quiet", "HEAD"):
            return MergeResult(is_done=False, reason="no branch is checked out in the project (HEAD is detached)")
        into = git.says("symbolic-ref", "--short", "HEAD")
        try:
            target = _merge_commit(git, workspace, commit, into)
            if isinstance(target, MergeResult):
                return target
            if not intent.begin():
                return MergeResult(is_done=False, into=into, reason="it was stopped before that")
            git.run("merge", "--ff-only", "--no-autostash", "--no-stat", "--quiet", target)
        except GitFailed as failed:
            return MergeResult(is_done=False, into=into, conflicts=_named_files(failed.words), reason=_why(failed, "the project"))
    return MergeResult(is_done=True, into=into)


def merge_into_workspace(workspace: Workspace, commit: str, host: Workspace, intent: MergeIntent, *, seconds: float) -> MergeResult:
    """Bring what `commit` adds to its base into the folder of the caller's workspace, beside whatever was done there since."""
    into = host.inside
    try:
        with open_git(host, seconds=min(seconds, MERGING_SECONDS)) as git:
            stage_changes(git)
            tree = git.says("write-tree")
            target: str | MergeResult = commit
            if tree != git.says("rev-parse", f"{workspace.base}^{{tree}}"):
                ours = git.says("commit-tree", tree, "-p", workspace.base, "-m", f"{host.maker}: before {workspace.branch}")
                target = _merge_trees(git, ours, commit, into)
            if isinstance(target, MergeResult):
                return target
            if not intent.begin():
                return MergeResult(is_done=False, into=into, reason="it was stopped before that")
            git.run("read-tree", "-m", "-u", tree, target)
    except GitFailed as failed:
        return MergeResult(is_done=False, into=into, conflicts=_named_files(failed.words), reason=_why(failed, "the caller's workspace"))
    return MergeResult(is_done=True, into=into)


class MergeWrite(NamedTuple):
    """A file that a merge would change in the project."""

    file: ChangedFile
    path: str
    """Relative to the project; to the repository, where it is outside of the project."""
    protected: str | None
    """Why it is protected, where its path alone does not say so."""

    def request(self, alike: PolicyRequest) -> PolicyRequest:
        """What the policy is asked: the same as of a write or deletion by the agent itself."""
        facts = path_facts(self.path, Path("/"))
        if self.protected is not None:
            facts["protected"] = str(self.protected)
        effect = Effect.DELETE if self.file.is_deleted else Effect.WRITE
        return replace(alike, effects=(str(effect),), facts=facts)


def merge_writes(workspace: Workspace, commit: str, *, seconds: float) -> list[MergeWrite]:
    """What merging `commit` would change, for the policy."""
    git = _project(workspace, time.monotonic() + seconds)
    files = _entries(git.run("diff-tree", "-r", *_RAW_DIFF, workspace.base, commit))
    below = f"{workspace.below}/" if workspace.below else ""
    return [MergeWrite(file, file.path.removeprefix(below), _protection(git, file, file.path.removeprefix(below))) for file in files]


def _protection(git: Git, file: ChangedFile, path: str) -> str | None:
    """A link in the place of a protected file or folder puts other files there; of pyproject.toml only remit's own table counts."""
    if {file.mode, file.old_mode} & {_LINK, _SUBMODULE}:
        return protection_of(path, is_link=True)
    if not is_pyproject(path):
        return None
    old, new = (
        remit_table(b"" if mode == _NO_FILE else git.run("cat-file", "blob", object_id))
        for mode, object_id in ((file.old_mode, file.old_object_id), (file.mode, file.object_id))
    )
    return None if old == new else Protection.SETTINGS


def commit_without(workspace: Workspace, commit: str, left_out: Sequence[MergeWrite], *, message: str, seconds: float) -> str:
    """The changes of `commit` except those of some files, as one commit on the base; `commit` stays on its branch."""
    git = _project(workspace, time.monotonic() + seconds).using(workspace.metadata_folder / "index.merge")
    entries = (b"%b %b\t%b" % (f.old_mode.encode(), f.old_object_id.encode(), os.fsencode(f.path)) for f, _, _ in left_out)
    git.run("read-tree", commit)
    git.run("update-index", "--replace", "-z", "--index-info", stdin=b"".join(entry + b"\0" for entry in entries))
    tree = git.says("write-tree")
    if tree == git.says("rev-parse", f"{workspace.base}^{{tree}}"):
        return workspace.base
    return git.says("commit-tree", tree, "-p", workspace.base, "-m", message)


def merge_by_hand(workspace: Workspace, message: str, may_write: Callable[[Sequence[MergeWrite]], Sequence[bool]]) -> MergeResult:
    """Bring its changes into the branch that is checked out in the project, as `merge = true` does. Nothing is removed.

    `may_write`: which of the files may be merged; the others are left out.
    """
    if not workspace.branch:
        return MergeResult(is_done=False, reason="it is a copy, which has no branch; its diff can be applied with git apply")
    if workspace.host:
        return MergeResult(
            is_done=False, reason=f"it began from the workspace of {workspace.host}, and its branch also contains that one's work"
        )
    stop_at = time.monotonic() + MERGING_SECONDS
    changes = take_changes(workspace, message=message, diff_in=None, seconds=MERGING_SECONDS)
    if changes.doubt or changes.commit is None:
        return MergeResult(is_done=False, reason=changes.doubt or "its changes could not be taken")
    if not changes.count:
        return MergeResult(is_done=False, reason="nothing was changed in it")
    writes = merge_writes(workspace, changes.commit, seconds=stop_at - time.monotonic())
    left_out = [one for one, is_allowed in zip(writes, may_write(writes), strict=True) if not is_allowed]
    return merge_permitted(workspace, changes.commit, left_out, MergeIntent(), message=message, seconds=stop_at - time.monotonic())


def merge_permitted(
    workspace: Workspace,
    commit: str,
    left_out: Sequence[MergeWrite],
    intent: MergeIntent,
    *,
    message: str,
    seconds: float,
    host: Workspace | None = None,
) -> MergeResult:
    """Bring `commit` without the files left out into the project, or into the caller's workspace."""
    stop_at = time.monotonic() + seconds
    if left_out:
        commit = commit_without(workspace, commit, left_out, message=message, seconds=seconds)
    if commit == workspace.base:
        names = tuple(one.path for one in left_out)
        return MergeResult(is_done=False, conflicts=names, reason="the policy does not allow its agent to change any of its files")
    left = max(0.0, stop_at - time.monotonic())
    if host is None:
        result = merge(workspace, commit, intent, seconds=left)
    else:
        result = merge_into_workspace(workspace, commit, host, intent, seconds=left)
    return replace(result, left_out=tuple(one.path for one in left_out)) if result.is_done else result


def is_merged(workspace: Workspace, commit: str, *, seconds: float) -> bool:
    """Whether the project's branch holds this commit."""
    return _project(workspace, time.monotonic() + seconds).asks("merge-base", "--is-ancestor", commit, "HEAD")


def _project(workspace: Workspace, stop_at: float) -> Git:
    """Git in the project's own checkout, wherever the configuration now says that it lies."""
    git_dir = Path(workspace.project_git_dir) if workspace.project_git_dir else None
    git = Git(folder=workspace.root, stop_at=stop_at, git_dir=git_dir, work_tree=workspace.top)
    return held(git, Settings(workspace.commands, workspace.fetching))


def _merge_commit(git: Git, workspace: Workspace, commit: str, into: str) -> str | MergeResult:
    """The commit to go forward to: both histories in one."""
    ours = git.says("rev-parse", "--verify", "HEAD^{commit}")
    if git.asks("merge-base", "--is-ancestor", ours, commit):
        return commit
    if git.asks("merge-base", "--is-ancestor", commit, ours):
        return ours  # it is in there already: a merge that was done before a crash
    tree = _merge_trees(git, ours, commit, into)
    return (
        tree
        if isinstance(tree, MergeResult)
        else ours
        if tree == git.says("rev-parse", f"{ours}^{{tree}}")
        else git.says("commit-tree", tree, "-p", ours, "-p", commit, "-m", f"Merge {workspace.branch}")
    )


def _merge_trees(git: Git, ours: str, theirs: str, into: str) -> str | MergeResult:
    """The tree with the changes of both; no file is touched."""
    code, told = git.code("merge-tree", "--write-tree", "-z", "--name-only", "--no-messages", ours, theirs)
    tree, *names = [part.decode(errors="replace") for part in told.split(b"\0") if part]
    if code:
        return MergeResult(is_done=False, into=into, conflicts=tuple(names), reason="both sides changed the same lines")
    return tree


def _named_files(words: str) -> tuple[str, ...]:
    """The files git names when it refuses: each on a line of its own, indented by a tab; or quoted, by its plainer commands."""
    listed = tuple(line.strip() for line in words.splitlines() if line.startswith("\t"))
    return listed or tuple(_QUOTED.findall(words))


def _why(failed: GitFailed, where: str) -> str:
    if failed.exit_code == _UNKNOWN_OPTION:
        return f"this git is too old to merge without touching files; {NEEDED_GIT} or later is needed for work on both sides"
    if any(words in failed.words for words in _OVERWRITTEN):
        return f"uncommitted work in {where} would be overwritten"
    return failed.message
