"""What a return comes to on the board, judged by the files that exist and never by what the agent says of them.

`judge_document` is for research, plan and revise, `judge_work` for implement. Reads files and git, writes nothing: the callers file each
verdict as one change of the board.
"""

import os
import re
import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from remit.board.board import SPECS
from remit.board.command_lifecycle import move_task
from remit.board.commits import find_repository
from remit.board.outcome import one_line
from remit.board.plans import read_plan
from remit.board.task import BEGINS, DONE, PhaseStatus, PlanVersion, Status, Task, TaskArtifact
from remit.board.task_prompts import Brief
from remit.core import result as returns
from remit.core.errors import ErrorInfo, RemitError
from remit.core.result import Artifact, Return, StopReason
from remit.runtime.artifacts import FileInfo, checked_artifacts, inspect_artifact, read_bounded
from remit.runtime.workspaces import TOOL_FOLDERS

KINDS = {"research": "report", "plan": "plan", "revise": "plan"}
"""The type of artifact that a command must bring."""
MAX_BYTES = 16 << 20
BOARD_FILES = frozenset({"specs/state.json", "specs/TODO.md"})
REASON_CHARACTERS = 300
CLOCK_LAG_SECONDS = 2.0
"""Files are dated by another clock than ours, on some disks by one that counts whole seconds."""
GIT_SECONDS = 20.0
MAX_NAMES = 10
STOPPED = frozenset({"TIMEOUT", "CANCELLED", "AGENT_CRASHED"})
"""Errors after which the same command takes the work up again."""
_TASK_FOLDER = re.compile(r"(\./)*specs/+(\d+_|archive/)")
_PROSE = re.compile(r"(^|/)\.remit/scratch/(.*/)?answer[^/]*$")
"""The text around a return, which is kept as a file too."""


def reason_of(result: Return) -> str:
    """Why a run is blocked, fit for a line of TODO.md: no control characters, none that change the direction of writing."""
    said = result.errors[0].message if result.errors else result.summary
    return one_line(said, REASON_CHARACTERS) or "The agent did not say why."


def stays_inside(root: Path, path: str) -> bool:
    """Whether it is in the board's folder: slugs and links come from others, and neither may lead a report out of it."""
    place = root / path
    return not place.is_symlink() and place.resolve().is_relative_to((root / SPECS).resolve())


# ---- reports and plans


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """The report or plan that a run has brought."""

    data: bytes
    summary: str = ""
    came_from: str = ""
    """Where it was, when not where it was wanted; `data` is then written there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DocumentVerdict:
    status: returns.Status
    moves_to: Status | None = None
    """None: the task keeps the marker of the command."""
    is_undone: bool = False
    """Nothing ran: the task goes back to where it was."""
    reason: str = ""
    found: Document | None = None
    more: tuple[Artifact, ...] = ()
    """Other files that it made in the task's folder."""
    errors: tuple[ErrorInfo, ...] = ()
    warnings: tuple[str, ...] = ()


def judge_document(root: Path, brief: Brief, result: Return) -> DocumentVerdict:
    if result.stop_reason is StopReason.REFUSED:
        return DocumentVerdict(status=result.status, is_undone=True, errors=result.errors)
    found = _find_document(root, brief, result)
    known = {one.path for one in brief.task.artifacts} | {brief.plan, *brief.reports, brief.write_to}
    more = tuple(one for one in result.artifacts if one.path.startswith(f"{brief.task.folder}/") and one.path not in known)
    if result.status is returns.Status.BLOCKED:
        reason = reason_of(result)
        return DocumentVerdict(status=result.status, moves_to=Status.BLOCKED, reason=reason, found=found, more=more, errors=result.errors)
    if result.status is not returns.Status.COMPLETED:
        errors = tuple(_with_way_back(error, brief, result) for error in result.errors)
        return DocumentVerdict(status=result.status, found=found, more=more, errors=errors)
    fault = _fault(brief, result, found)
    if fault is not None:  # what cannot be used is kept where it is, and linked as unfinished
        return DocumentVerdict(status=returns.Status.FAILED, found=found, more=more, errors=(fault,))
    assert found is not None, "a missing document is a fault"
    moved = (f"The {KINDS[brief.command]} was taken over from {found.came_from}.",) if found.came_from else ()
    return DocumentVerdict(status=result.status, moves_to=DONE[BEGINS[brief.command]], found=found, more=more, warnings=moved)


def _with_way_back(error: ErrorInfo, brief: Brief, result: Return) -> ErrorInfo:
    """How to go on after a stop, as a command of the board: the flow can only say to delegate again."""
    if result.stop_reason is StopReason.FINISHED or error.code not in STOPPED:
        return error
    longer = "; --timeout gives it longer" if error.code == "TIMEOUT" else ""
    return replace(error, recommendation=f"`remit {brief.command} {brief.task.number}` takes it up again{longer}.")


def apply_verdict(task: Task, at: str, brief: Brief, verdict: DocumentVerdict, before: Status | None) -> tuple[Task, tuple[str, ...]]:
    """The task with its new marker, links and plan versions; warnings where a person has moved it meanwhile."""
    warnings: tuple[str, ...] = ()
    begun = BEGINS[brief.command]
    if verdict.is_undone and before is not None and task.status is begun:
        task = replace(task, status=before, started=brief.task.started, blocking_reason=brief.task.blocking_reason)
    elif verdict.moves_to is not None:
        task, warnings = move_task(task, begun, verdict.moves_to, at, reason=verdict.reason)
    is_done = verdict.status is returns.Status.COMPLETED
    if verdict.found is not None:
        kind = "research" if brief.command == "research" else "plan"
        extra = {} if is_done else {"partial": True}
        task = _with_link(task, TaskArtifact(type=kind, path=brief.write_to, summary=verdict.found.summary, extra=extra))
        if is_done and kind == "plan":
            task = _with_plan(task, at, brief)
    for artifact in verdict.more:
        task = _with_link(task, TaskArtifact(type=artifact.type, path=artifact.path, summary=artifact.summary))
    return task, warnings


def next_path(root: Path, task: Task | None, folder: str, name: str, taken: Collection[str] = ()) -> str:
    """`folder/name-001.md`: one more than any that exists, was linked or is taken, so that nothing is overwritten."""
    pattern = re.compile(rf"{re.escape(name)}-(\d+)\.")
    linked = [*(one.path for one in task.artifacts), *(one.path for one in task.plan_versions)] if task is not None else []
    names = [path.rpartition("/")[2] for path in (*linked, *taken)]
    if (root / folder).is_dir():
        names += os.listdir(root / folder)
    return f"{folder}/{name}-{1 + max((int(found[1]) for one in names if (found := pattern.match(one))), default=0):03d}.md"


def next_version(task: Task) -> int:
    return 1 + max([1 if task.plan_path else 0, *(one.version for one in task.plan_versions)])


def document_artifacts(root: Path, brief: Brief, verdict: DocumentVerdict) -> tuple[Artifact, ...]:
    """The files of the run as they are now, with size and hash."""
    listed = []
    if verdict.found is not None:
        listed.append(Artifact(type=KINDS[brief.command], path=brief.write_to, summary=verdict.found.summary))
    return checked_artifacts(root, (*listed, *verdict.more))


def _find_document(root: Path, brief: Brief, result: Return) -> Document | None:
    if not stays_inside(root, brief.write_to):
        return None  # the agent has put a link there: it is neither read nor written through
    return find_document(root, result, KINDS[brief.command], _candidates(brief, result), brief.write_to)


def find_document(root: Path, result: Return, kind: str, candidates: Iterable[Artifact], write_to: str = "") -> Document | None:
    """Where it was wanted; else one of these files that the return names; else the text of that kind in its data."""
    wanted = next((one for one in result.artifacts if one.path == write_to), Artifact(type=kind, path=write_to))
    for artifact in (*([wanted] if write_to else []), *candidates):
        data = _read_inside(root, artifact.path)
        if data is not None and data.strip():
            return Document(data=data, summary=artifact.summary, came_from="" if artifact.path == write_to else artifact.path)
    text = result.data.get(kind) if isinstance(result.data, dict) else None
    if not isinstance(text, str) or text.strip() in ("", write_to):
        return None
    return Document(data=text.encode("utf-8", "replace"), came_from="the data of its return")


def _candidates(brief: Brief, result: Return) -> Iterator[Artifact]:
    """Artifacts that may be the document: of its type and of this run.

    Of a run that was stopped, only what has the wanted path in a folder of its own: other files that changed in the project at that moment
    may be anybody's.
    """
    known = {one.path for one in brief.task.artifacts} | {brief.plan, *brief.reports} | BOARD_FILES
    was_stopped = result.stop_reason is not StopReason.FINISHED
    for artifact in result.artifacts:
        path = artifact.path
        is_old = artifact.mtime is not None and artifact.mtime < brief.begun_at - CLOCK_LAG_SECONDS
        is_anothers = bool(_TASK_FOLDER.match(path)) and not path.startswith(f"{brief.task.folder}/")
        if path in known or _PROSE.search(path) or is_old or is_anothers:
            continue
        if path.endswith(f"/{brief.write_to}") or (artifact.type == KINDS[brief.command] and not was_stopped):
            yield artifact


def _read_inside(root: Path, path: str) -> bytes | None:
    """Only what is inside the project, and through no link that leads out."""
    if not isinstance(inspect_artifact(root, path), FileInfo):
        return None
    data = read_bounded((root / path).resolve(), MAX_BYTES)
    return data if data is not None and len(data) <= MAX_BYTES else None


def _fault(brief: Brief, result: Return, found: Document | None) -> ErrorInfo | None:
    """Why a return that says completed is not."""
    kind, agent = KINDS[brief.command], result.metadata.agent_type
    if found is None:
        is_large = any(one.path == brief.write_to and (one.size or 0) > MAX_BYTES for one in result.artifacts)
        missing = f"{brief.write_to} {f'has more than {MAX_BYTES >> 20} MiB' if is_large else 'is missing or empty'}"
        words = f"{agent} says completed, but there is no {kind}: {missing}, and no other file of type {kind} was named."
        return _error("FILE_NOT_FOUND", words, brief, result)
    if kind != "plan":
        return None
    plan = read_plan(found.data.decode("utf-8", "replace"))
    where = found.came_from or brief.write_to
    if not plan.phases:
        why = f" ({plan.faults[0]})" if plan.faults else ""
        return _error("VALIDATION_FAILED", f"The plan {where} has no phase that can be read{why}.", brief, result)
    if plan.doubled:
        numbers = ", ".join(map(str, plan.doubled))
        return _error("VALIDATION_FAILED", f"The plan {where} has more than one phase {numbers}.", brief, result)
    return None


def _error(code: str, message: str, brief: Brief, result: Return) -> ErrorInfo:
    again = f"The status stays [{BEGINS[brief.command].marker}]: run `remit {brief.command} {brief.task.number}` again."
    look = f" `remit show {result.session_id}` shows what it did."
    return ErrorInfo(type="validation", message=message, code=code, recoverable=True, recommendation=again + look)


def _with_link(task: Task, link: TaskArtifact) -> Task:
    return replace(task, artifacts=(*(one for one in task.artifacts if one.path != link.path), link))


def _with_plan(task: Task, at: str, brief: Brief) -> Task:
    """The current plan and its version; the first one of an older board is remembered as such."""
    versions = task.plan_versions
    if task.plan_path and task.plan_path != brief.write_to and not any(one.path == task.plan_path for one in versions):
        versions = (*versions, PlanVersion(version=max(1, brief.version - 1), path=task.plan_path))
    if all(one.path != brief.write_to for one in versions):
        versions = (*versions, PlanVersion(version=brief.version, path=brief.write_to, created=at, reason=brief.focus))
    return replace(task, plan_path=brief.write_to, plan_versions=versions)


# ---- implementations


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkVerdict:
    is_done: bool
    status: str
    """Of the outcome: completed, partial, failed, blocked."""
    summary: str
    phase: PhaseStatus | None = None
    """The phase's marker from now on; None: what it was before, for nothing ran."""
    task: Status | None = None
    """The task's, when the work stops here; None: it stays as it is."""
    is_undone: bool = False
    """It was refused and nothing ran: phase and task go back to where they were."""
    reason: str = ""
    errors: tuple[ErrorInfo, ...] = ()
    artifacts: tuple[Artifact, ...] = ()
    """Those in the project."""
    deleted: tuple[str, ...] = ()
    not_its_own: tuple[str, ...] = ()
    """Named by the agent, but of the board, of another task or of git: never committed as its work."""

    @property
    def files(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(artifact.path for artifact in self.artifacts))


def judge_work(root: Path, result: Return, own: str) -> WorkVerdict:
    """`own`: the task's folder."""
    deleted = _deleted(root, result.data)
    named = dict.fromkeys((*(one.path for one in result.artifacts), *deleted))
    others = {path for path in named if _is_anothers(root, path, own)}
    artifacts = tuple(one for one in result.artifacts if _is_work(root, one.path) and one.path not in others)
    deleted = tuple(path for path in deleted if path not in others)
    # Of a run that was stopped the files were found, not named: remit itself writes those of the board meanwhile.
    not_its_own = tuple(path for path in named if path in others) if result.stop_reason is StopReason.FINISHED else ()
    said = returns.Status
    if result.status is said.COMPLETED and (artifacts or deleted):
        verdict = WorkVerdict(is_done=True, status="completed", phase=PhaseStatus.COMPLETED, summary=result.summary)
        return replace(verdict, artifacts=artifacts, deleted=deleted, not_its_own=not_its_own)
    if result.status is said.COMPLETED:
        error = _nothing_made(result)
        verdict = WorkVerdict(is_done=False, status="failed", phase=PhaseStatus.PARTIAL, summary=error.message, errors=(error,))
        return replace(verdict, not_its_own=not_its_own)
    verdict = WorkVerdict(is_done=False, status=str(result.status), summary=result.summary, errors=result.errors, not_its_own=not_its_own)
    if result.stop_reason is StopReason.REFUSED:
        return replace(verdict, is_undone=True)
    return replace(
        verdict,
        phase=PhaseStatus.BLOCKED if result.status is said.BLOCKED else PhaseStatus.PARTIAL,
        task={said.PARTIAL: Status.PARTIAL, said.BLOCKED: Status.BLOCKED}.get(result.status),
        reason=reason_of(result),
        artifacts=artifacts,
        deleted=deleted,
    )


def _is_work(root: Path, path: str) -> bool:
    return (root / path).exists() and _parts(root, path)[0] != ".remit"


def _is_anothers(root: Path, path: str, own: str) -> bool:
    """Of git, of the board or of another task, wherever links lead to."""
    parts = _parts(root, path)
    if ".git" in (part.lower() for part in parts):
        return True
    if parts[0] != SPECS or "/".join(parts[:2]) == own:
        return False
    return parts[1:] in (("state.json",), ("TODO.md",)) or (len(parts) > 2 and bool(re.match(r"\d+_|archive$", parts[1])))


def _parts(root: Path, path: str) -> tuple[str, ...]:
    top = os.path.realpath(root)
    return tuple(os.path.relpath(os.path.realpath(os.path.join(top, path)), top).split(os.sep))


def _deleted(root: Path, data: Any) -> tuple[str, ...]:
    """Paths that the agent says it deleted and that are gone."""
    named = data.get("deleted") if isinstance(data, dict) else None
    if not isinstance(named, list):
        return ()
    paths = [one for one in named if isinstance(one, str) and one.strip() and one.isprintable() and not one.startswith(("/", ".remit/"))]
    return tuple(dict.fromkeys(one for one in paths if ".." not in one.split("/") and not (root / one).exists()))


def _nothing_made(result: Return) -> ErrorInfo:
    """Completed, without a file in the project."""
    agent, place = result.metadata.agent_type, result.extra.get("workspace")
    branch = place.get("branch") if isinstance(place, dict) else None
    if branch:
        message = f"{agent} says completed, but its work is on the branch {branch} and not in the project."
        merge = f"remit workspaces {result.session_id} --merge"
        advice = f"Let its agent merge (merge = true), or merge it yourself ({merge}) and mark the phase [COMPLETED]."
    else:
        message = f"{agent} says completed, but names no file of the project that it made or changed."
        advice = "Look at what it did (`git status`); then run it again, or mark the phase [COMPLETED] in the plan yourself."
    return ErrorInfo(type="validation", code="VALIDATION_FAILED", message=message, recoverable=True, recommendation=advice)


# ---- files that changed while an agent worked


Changes = Mapping[str, tuple[int, int]]
"""Each file that git does not have as it is, with its size and time; a file that is gone with (-1, -1)."""


def uncommitted_changes(root: Path, own: str) -> Changes | None:
    """`own`: the task's folder; other files of remit are left out. None: there is no git here, or it did not answer in time."""
    try:
        repository = find_repository(root, time.monotonic() + GIT_SECONDS)
        if repository is None:
            return None
        told = repository.git.run("--no-optional-locks", "status", "--porcelain=v1", "-z", "--untracked-files=all", "--no-renames")
    except (RemitError, OSError):
        return None
    below = repository.prefix
    names = [os.fsdecode(entry[3:]) for entry in told.split(b"\0") if len(entry) > 3]
    inside = [name.removeprefix(below) for name in names if name.startswith(below)]
    ours = (".remit/", f"{SPECS}/")
    counted = [name for name in inside if not name.startswith(ours) or name.startswith(f"{own}/")]
    return {name: _stamp(root / name) for name in counted if TOOL_FOLDERS.isdisjoint(name.split("/")[:-1])}


def unnamed_changes(root: Path, own: str, before: Changes | None, named: Collection[str]) -> tuple[str, ...]:
    """Files that changed since `before` and that the return does not name: reported, and never committed."""
    after = uncommitted_changes(root, own) if before is not None else None
    if before is None or after is None:
        return ()
    return tuple(sorted(name for name, stamp in after.items() if before.get(name) != stamp and name not in named))


def untouched_changes(root: Path, before: Changes | None, named: Collection[str]) -> tuple[str, ...]:
    """Files that were changed before the run and are as they were: what is uncommitted in them is not the agent's."""
    return tuple(sorted(name for name in named if before is not None and name in before and before[name] == _stamp(root / name)))


def name_files(names: Collection[str]) -> str:
    shown = sorted(names)
    return ", ".join(shown[:MAX_NAMES]) + (f" and {len(shown) - MAX_NAMES} more" if len(shown) > MAX_NAMES else "")


def _stamp(path: Path) -> tuple[int, int]:
    try:
        found = path.lstat()
    except OSError:
        return (-1, -1)
    return found.st_size, found.st_mtime_ns
