"""Workspaces: git worktrees for one delegation each; their changes, and merging them.

`.remit/work/SESSION` is the folder, `.remit/work/.books/SESSION` its metadata (`note.json`, written last, and a separate git index), out of
the agent's reach. Resuming a delegation takes over its metadata. Blocking: call it off the event loop."""

import contextlib
import json
import os
import shutil
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

from remit.core.errors import Misused, Unavailable
from remit.core.ids import is_session_id
from remit.core.policy import Effect, PolicyRequest
from remit.core.protected_paths import Protection, is_pyproject, protection_of, remit_table
from remit.core.text import shorten
from remit.runtime.policy_facts import path_facts
from remit.system.artifact_files import read_bounded
from remit.system.beneath import open_folder, path_inside
from remit.system.files import atomic_write, file_lock, remove_folder
from remit.system.git import (
    BARE,
    LOCK_WAIT_SECONDS,
    NO_SUBMODULES,
    REPOSITORY_LOCK,
    Git,
    GitFailed,
    Settings,
    settings_of,
    with_recorded_settings,
)
from remit.system.ownership import is_sealed, seal

KIND = "worktree"
METADATA = ".books"
METADATA_FILE = "note.json"
MOST_METADATA_BYTES = 1 << 20
LOCK = "lock"
TAKE_OVER_SECONDS = 20.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Workspace:
    root: Path
    """The project's root."""
    session_id: str
    """The delegation it belongs to now."""
    maker: str
    """The delegation it was created for: names folder and branch."""
    base: str
    """The commit it started from."""
    git_dir: Path
    """Its git directory in the repository; passed to git explicitly."""
    common_dir: Path
    """The repository's common git directory, which contains its lock."""
    below: str = ""
    """The project's root relative to the repository, if it is a sub-folder."""
    made_at: float = 0.0
    """Wall clock of the file system: newer files were written in it."""
    is_dirty: bool = False
    """Whether the project had uncommitted changes at its creation; they are not in it."""
    project_git_dir: str = ""
    """The git directory of the project's own checkout, of which a worktree was created."""
    commands: Mapping[str, str] = field(default_factory=dict)
    """Git settings that run commands, at its creation (see `git.held`)."""
    fetching: str = ""
    """The same for git settings of fetching."""
    task: int = 0
    """The board task whose delegations all work in it; 0: it belongs to a delegation."""
    onto: str = ""
    """Target branch of its task."""

    @property
    def top(self) -> Path:
        """The project's own checkout: the root or a parent of it."""
        return self.root.parents[len(Path(self.below).parts) - 1] if self.below else self.root

    @property
    def tree(self) -> Path:
        """The whole checkout."""
        return work_root(self.root) / self.maker

    @property
    def folder(self) -> Path:
        """The agent's working folder."""
        return self.tree / self.below if self.below else self.tree

    @property
    def inside(self) -> str:
        """The same, relative to the project's root."""
        return self.folder.relative_to(self.root).as_posix()

    @property
    def branch(self) -> str:
        return f"remit/{self.maker}"

    @property
    def metadata_folder(self) -> Path:
        return metadata_folder(self.root, self.session_id)

    @property
    def index(self) -> Path:
        return self.metadata_folder / "index"

    @property
    def is_there(self) -> bool:
        """Whether the folder still exists and was not replaced by a link."""
        return path_inside(self.root, self.inside) == self.inside and self.folder.is_dir()


def work_root(root: Path) -> Path:
    return root / ".remit" / "work"


def metadata_folder(root: Path, session_id: str) -> Path:
    return work_root(root) / METADATA / session_id


def write_metadata(workspace: Workspace) -> Workspace:
    """Write the metadata; the workspace exists from here on."""
    fields = asdict(workspace) | {"kind": KIND, "git_dir": str(workspace.git_dir), "common_dir": str(workspace.common_dir)}
    del fields["root"]
    fields["seal"] = seal(_sealed_text(workspace))
    atomic_write(workspace.metadata_folder / METADATA_FILE, json.dumps(fields, indent=1).encode(), fsync=False)
    return workspace


def find_workspace(root: Path, session_id: str) -> Workspace | None:
    """The workspace of a delegation, if it and its folder exist."""
    workspace = load_workspace(root, session_id)
    return workspace if workspace is not None and workspace.is_there else None


def _sealed_text(workspace: Workspace) -> str:
    """The parts of a note that determine where git works and which commands it runs."""
    paths = (workspace.root, workspace.git_dir, workspace.common_dir, workspace.project_git_dir)
    facts: tuple[str, ...] = (workspace.maker, KIND, workspace.base, workspace.below, "", workspace.fetching)
    facts += (str(workspace.task), workspace.onto) if workspace.task else ()
    return json.dumps([*map(str, paths), *facts, sorted(workspace.commands.items())])


def adopt_workspaces(root: Path) -> None:
    """Accept the workspaces noted here: those of a moved project or of an older remit."""
    for session_id in list_workspaces(root):
        workspace = load_workspace(root, session_id, is_adopted=True)
        if workspace is not None:
            write_metadata(workspace)


def load_workspace(root: Path, session_id: str, *, is_adopted: bool = False) -> Workspace | None:
    """The workspace from its note, whatever its folder. Only a note written here: any other could name commands for git to run."""
    if not is_session_id(session_id):
        return None
    try:
        fields = json.loads(read_bounded(metadata_folder(root, session_id) / METADATA_FILE, MOST_METADATA_BYTES) or b"")
        fields |= {"git_dir": Path(fields["git_dir"]), "common_dir": Path(fields["common_dir"])}
        found, kind = fields.pop("seal", ""), fields.pop("kind")
        fields.pop("host", "")  # of older notes
        workspace = replace(Workspace(root=root, **fields), session_id=session_id)
        is_ours = is_adopted or is_sealed(_sealed_text(workspace), found)
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None  # missing or damaged: treated as never created
    return workspace if is_ours and kind == KIND and is_session_id(workspace.maker) else None


def take_over_workspace(root: Path, earlier: str, session_id: str) -> Workspace | None:
    """Take over the workspace of the resumed run, under its lock. Only one process can: its metadata is renamed."""
    if find_workspace(root, earlier) is None:
        return None
    with contextlib.suppress(OSError, Unavailable), file_lock(metadata_folder(root, earlier) / LOCK, timeout=TAKE_OVER_SECONDS):
        if find_workspace(root, earlier) is not None:
            os.rename(metadata_folder(root, earlier), metadata_folder(root, session_id))
    workspace = find_workspace(root, session_id)
    return None if workspace is None else write_metadata(workspace)


def list_workspaces(root: Path) -> list[str]:
    """The sessions with metadata here."""
    with contextlib.suppress(OSError):
        return sorted(name for name in os.listdir(work_root(root) / METADATA) if is_session_id(name))
    return []


# ---- changes


UNMERGED = "unmerged"
"""Key of a delegated task of which the board files one document: the worktree of its agent is not merged."""
TOOL_FOLDERS = frozenset({"node_modules", ".venv", "venv", "__pycache__", ".mypy_cache", ".ruff_cache", ".pytest_cache", ".tox"})
"""Created by tools, which can recreate them."""
_CACHES = tuple(f":(exclude,glob)**/{name}/**" for name in ("__pycache__", ".mypy_cache", ".ruff_cache", ".pytest_cache"))
"""Never part of an agent's work, ignored by the project or not."""
DIFF = "changes.diff"
TAKING_SECONDS = 60.0
_UNOPENED = "warning: could not open directory"
"""What git says of a folder that is unreadable or too deep; it succeeds nevertheless."""
_SUBMODULE, _LINK = "160000", "120000"
RAW_DIFF = ("--raw", "-z", "--no-renames", "--no-abbrev")
PLAIN_DIFF = (
    "--no-color", "--no-ext-diff", "--no-textconv", "--no-relative", "--submodule=short", "--src-prefix=a/", "--dst-prefix=b/",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    changed: tuple[str, ...] = ()
    """Files added, changed or renamed, relative to its tree."""
    count: int = 0
    """Number of changed files, deleted ones included."""
    diff: Path | None = None
    commit: str
    """On the workspace's branch; the base itself if nothing changed."""
    warnings: tuple[str, ...] = ()
    doubt: str = ""
    """Why it needs inspection before a merge: continues "could not be merged: "."""


def take_changes(workspace: Workspace, *, message: str, diff_in: Path | None, seconds: float = TAKING_SECONDS) -> Changes:
    """Write the diff to `diff_in`, commit the changes on the branch, and return them. Removes and merges nothing."""
    with open_git(workspace, seconds=seconds) as git:
        warnings = stage_changes(git)
        entries = list(parse_raw_diff(git.run("diff", "--cached", *RAW_DIFF, workspace.base)))
        diff = _write_diff(git, workspace, diff_in) if entries and diff_in is not None else None
        commit = _commit(git, workspace, message)
    if any(entry.mode == _SUBMODULE for entry in entries):
        warnings += ("A repository inside the workspace is in the diff as a reference only; its files are in the folder.",)
    doubt = "nothing of it could be taken" if warnings and not entries else ""
    if git.overrides:
        names = ", ".join(name for name, _ in git.overrides[:3])
        doubt = f"git settings that run commands were changed meanwhile ({names})"
        warnings += (f"Git settings that run commands were changed meanwhile and are not used: {names}.",)
    changed = tuple(entry.path for entry in entries if not entry.is_deleted)
    return Changes(changed=changed, count=len(entries), diff=diff, commit=commit, warnings=warnings, doubt=doubt)


@contextlib.contextmanager
def open_git(workspace: Workspace, *, seconds: float) -> Iterator[Git]:
    """Git in the workspace, with a separate index, under the workspace's lock."""
    if not workspace.is_there:
        raise Unavailable("The workspace no longer exists: its folder was removed or replaced.", advice="Delegate it again.")
    git = Git(folder=workspace.tree, stop_at=time.monotonic() + seconds, git_dir=workspace.git_dir, index=workspace.index)
    with file_lock(workspace.metadata_folder / LOCK, timeout=max(0.0, seconds)):
        with contextlib.suppress(FileNotFoundError):
            Path(f"{workspace.index}.lock").unlink()  # only remit uses it: left by a killed run
        yield with_recorded_settings(git, Settings(workspace.commands, workspace.fetching), base=workspace.base)


def stage_changes(git: Git) -> tuple[str, ...]:
    """Stage everything in the separate index; unreadable files become warnings."""
    left_out: tuple[str, ...] = _CACHES
    try:
        left_out += tuple(f":(exclude,literal){path}" for path in _stage_repositories(git))
        said = git.warnings("add", "--all", "--", ".", *left_out)
        unopened = [line for line in said.splitlines() if line.startswith(_UNOPENED)]
        return (f"Not everything is in the diff: {shorten('; '.join(unopened), 300)}",) if unopened else ()
    except GitFailed as failed:
        if "not a git repository" in failed.words:
            raise Unavailable(f"What git keeps of the workspace was damaged or removed ({git.git_dir}).") from None
        # For example an unreadable file, or an inner repository without a commit: the rest still counts.
        git.run("add", "--all", "--ignore-errors", "--", ".", *left_out, allowed=(0, 1, 128))
        return (f"Not everything is in the diff: {failed.message}",)


def _stage_repositories(git: Git) -> list[str]:
    """Stage inner repositories by their HEAD and return their paths. `git add` would run filters of their configuration (the agent's)."""
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


def parse_raw_diff(raw: bytes) -> Iterator[ChangedFile]:
    parts = iter(raw.split(b"\0"))
    for head in parts:
        if head:
            old_mode, mode, old, new, status = head.decode().removeprefix(":").split(" ")
            yield ChangedFile(os.fsdecode(next(parts)), mode, old_mode, new, old, status[0] == "D")


def _write_diff(git: Git, workspace: Workspace, folder: Path) -> Path:
    """Written atomically, never over a file of the agent."""
    draft = draft_diff(git, workspace)
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


def draft_diff(git: Git, workspace: Workspace) -> Path:
    """The diff of the changes that are staged, beside the metadata."""
    draft = workspace.metadata_folder / DIFF
    with open(draft, "wb") as file:
        git.run("diff", "--cached", "--binary", "--find-renames", *PLAIN_DIFF, workspace.base, stdout=file)
    return draft


def is_recorded_diff(path: str) -> bool:
    """Whether an artifact is the diff of a workspace, by its name."""
    name = path.rpartition("/")[2]
    return path.startswith(".remit/") and name.startswith("changes") and name.endswith(".diff")


def _commit(git: Git, workspace: Workspace, message: str) -> str:
    """Commit the current tree on the workspace's branch."""
    commit = _commit_of(git, workspace, message)
    git.run("update-ref", f"refs/heads/{workspace.branch}", commit)
    with contextlib.suppress(OSError):  # afterwards the folder is a clean checkout
        shutil.copy2(workspace.index, workspace.git_dir / "index.remit")
        os.replace(workspace.git_dir / "index.remit", workspace.git_dir / "index")
    return commit


def _commit_of(git: Git, workspace: Workspace, message: str) -> str:
    """A commit of the staged files; the agent's own commits stay in its history."""
    tree = git.says("write-tree")
    parent = workspace.base
    with contextlib.suppress(GitFailed):  # a HEAD that is invalid or belongs to another history is not continued
        if git.asks("merge-base", "--is-ancestor", workspace.base, "HEAD"):
            parent = git.says("rev-parse", "--verify", "HEAD^{commit}")
    if git.says("rev-parse", f"{parent}^{{tree}}") == tree:
        return parent
    return git.says("commit-tree", tree, "-p", parent, "-m", message)


# ---- creation


MAKING_SECONDS = 120.0
FILE_TICK_SECONDS = 0.012
"""Resolution of file times; after this long the clock has advanced."""


def open_workspace(root: Path, session_id: str, *, earlier: str | None, seconds: float, base: str = "") -> tuple[Workspace, bool]:
    """The workspace of this delegation, and whether it existed. Raises `Misused`, `Unavailable`."""
    workspace = find_workspace(root, session_id)
    if workspace is None and earlier is not None:
        workspace = take_over_workspace(root, earlier, session_id)
    if workspace is not None:
        return workspace, True
    return make_workspace(root, session_id, seconds=seconds, base=base), False


def make_workspace(root: Path, session_id: str, *, seconds: float, base: str = "", task: tuple[int, str] = (0, "")) -> Workspace:
    """A new workspace. `task`: the task of the board that owns it, and the branch that its work is merged into. See `open_workspace`."""
    stop_at = time.monotonic() + min(seconds, MAKING_SECONDS)
    tree = work_root(root) / session_id
    (work_root(root) / METADATA / session_id).mkdir(mode=0o700, parents=True, exist_ok=True)
    workspace = _worktree(root, session_id, tree, stop_at, base)
    workspace.folder.mkdir(parents=True, exist_ok=True)  # a project that is in no commit yet has no folder there
    mark = workspace.metadata_folder / "made"
    mark.touch()
    number, onto = task
    workspace = replace(workspace, made_at=mark.stat().st_mtime, task=number, onto=onto)
    time.sleep(FILE_TICK_SECONDS)
    return write_metadata(workspace)


def _worktree(root: Path, session_id: str, tree: Path, stop_at: float, begin: str) -> Workspace:
    git = Git(folder=root, stop_at=stop_at)
    try:
        top, common = Path(git.says("rev-parse", "--show-toplevel")), git.says("rev-parse", "--git-common-dir")
    except GitFailed as failed:
        raise _no_repository(root, failed) from None
    base, is_dirty = (begin, False) if begin else _head(git)
    common_dir = (root / common).resolve()
    with file_lock(common_dir / REPOSITORY_LOCK, timeout=min(LOCK_WAIT_SECONDS, max(0.0, stop_at - time.monotonic()))):
        clear_worktree(git, session_id, tree)
        git.run("worktree", "add", "--quiet", "--no-track", "-b", f"remit/{session_id}", str(tree), base)
    git_dir = Path(Git(folder=tree, stop_at=stop_at).says("rev-parse", "--absolute-git-dir"))
    settings = settings_of(git)
    below = os.path.relpath(root.resolve(), top.resolve())
    workspace = Workspace(
        root=root,
        session_id=session_id,
        maker=session_id,
        base=base,
        git_dir=git_dir,
        common_dir=common_dir,
        below="" if below == "." else below,
        is_dirty=is_dirty,
        project_git_dir=git.says("rev-parse", "--absolute-git-dir"),
        commands=settings.commands,
        fetching=settings.fetching,
    )
    shutil.copy2(git_dir / "index", workspace.index)  # with its time: git treats only files older than its index as unchanged
    return workspace


def _head(git: Git) -> tuple[str, bool]:
    """The project's HEAD, and whether it has uncommitted changes."""
    try:
        base = git.says("rev-parse", "--verify", "--quiet", "HEAD^{commit}")
    except GitFailed:
        raise Misused(
            f"{git.folder} is a git checkout without a commit: there is nothing to make a worktree of.",
            advice="Commit something first.",
        ) from None
    ours = [f":(exclude,top,glob)**/{path}" for path in (".remit/**", "specs/state.json", "specs/TODO.md")]
    more = git.run("status", "--porcelain", "-z", NO_SUBMODULES, "--untracked-files=normal", "--", ":/", *ours)
    return base, bool(more)


def clear_worktree(git: Git, maker: str, tree: Path, *, with_branch: bool = True) -> None:
    """Remove a worktree, or what an earlier attempt left under this name."""
    if not os.path.lexists(tree) and not git.asks("show-ref", "--verify", "--quiet", f"refs/heads/remit/{maker}"):
        return
    with contextlib.suppress(GitFailed):
        git.run("worktree", "remove", "--force", "--force", str(tree))
    remove_folder(tree)
    with contextlib.suppress(GitFailed):
        git.run("worktree", "prune")
    if with_branch:
        with contextlib.suppress(GitFailed):
            git.run("update-ref", "-d", f"refs/heads/remit/{maker}")


def _no_repository(root: Path, failed: GitFailed) -> Misused:
    if "not a git repository" in failed.words or BARE in failed.words:
        return Misused(
            f"{root} is not a git checkout, so no worktree can be made of it.",
            advice='Run `git init` and commit, or declare the agent with workspace = "shared" or "scratch".',
        )
    return Misused(f"git cannot create a worktree of {root}: {failed.message}", advice="Fix that.")


# ---- merging


MERGING_SECONDS = 60.0
_NO_FILE = "000000"


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeResult:
    is_done: bool
    into: str = ""
    """The branch of the project."""
    conflicts: tuple[str, ...] = ()
    """Conflicting files, relative to the repository."""
    reason: str = ""
    """Why it was not done: continues "could not be merged: "."""
    is_protected: bool = False
    """Whether it was not done because the policy does not allow its agent to write `conflicts`."""
    code: str = "MERGE_CONFLICT"
    """Code of the error."""
    notes: tuple[str, ...] = ()


class MergeWrite(NamedTuple):
    """A file that a merge would change in the project."""

    file: ChangedFile
    path: str
    """Relative to the project; outside the project, to the repository."""
    protected: str | None
    """Why it is protected, if its path alone does not tell."""

    def request(self, alike: PolicyRequest) -> PolicyRequest:
        """The policy request: the same as for a write or deletion by the agent itself."""
        facts = path_facts(self.path, Path("/"))
        if self.protected is not None:
            facts["protected"] = str(self.protected)
        effect = Effect.DELETE if self.file.is_deleted else Effect.WRITE
        return alike._replace(effects=(str(effect),), facts=facts)


def not_permitted(paths: Iterable[str]) -> MergeResult:
    reason = "the policy does not allow its agent to write some of its files"
    return MergeResult(is_done=False, conflicts=tuple(paths), reason=reason, is_protected=True)


def merge_writes(workspace: Workspace, commit: str, *, seconds: float) -> list[MergeWrite]:
    """Changes of merging `commit`, for the policy."""
    git = project_git(workspace, time.monotonic() + seconds)
    files = parse_raw_diff(git.run("diff-tree", "-r", *RAW_DIFF, workspace.base, commit))
    return [describe_write(git, workspace, file) for file in files]


def describe_write(git: Git, workspace: Workspace, file: ChangedFile) -> MergeWrite:
    path = file.path.removeprefix(f"{workspace.below}/" if workspace.below else "")
    return MergeWrite(file, path, _protection(git, file, path))


def _protection(git: Git, file: ChangedFile, path: str) -> str | None:
    """A link in place of a protected file or folder would replace other files; in pyproject.toml only remit's own table counts."""
    if {file.mode, file.old_mode} & {_LINK, _SUBMODULE}:
        return protection_of(path, is_link=True)
    if not is_pyproject(path):
        return None
    old, new = (
        remit_table(b"" if mode == _NO_FILE else git.run("cat-file", "blob", object_id))
        for mode, object_id in ((file.old_mode, file.old_object_id), (file.mode, file.object_id))
    )
    return None if old == new else Protection.SETTINGS


def project_git(workspace: Workspace, stop_at: float) -> Git:
    """Git in the project's own checkout, regardless of its current configuration."""
    git_dir = Path(workspace.project_git_dir) if workspace.project_git_dir else None
    git = Git(folder=workspace.root, stop_at=stop_at, git_dir=git_dir, work_tree=workspace.top)
    return with_recorded_settings(git, Settings(workspace.commands, workspace.fetching))
