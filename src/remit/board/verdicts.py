"""Verdicts on returns, based on existing files and never on the agent's claims.

`judge_document` is for research, plan and revise, `judge_work` for implement. Reads files and git, writes nothing: the callers file each
verdict as one change of the board."""

import os
import re
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from remit.board.board import SPECS
from remit.board.command_lifecycle import new_error
from remit.board.commits import GIT_SECONDS, find_repository
from remit.board.plans import plan_faults, read_plan
from remit.board.task import BEGINS, DONE, PhaseStatus, Status, Task
from remit.board.task_prompts import Brief
from remit.core import result as returns
from remit.core.errors import ErrorInfo, RemitError
from remit.core.result import Artifact, Return, StopReason
from remit.core.text import list_some, one_line
from remit.runtime.workspaces import TOOL_FOLDERS
from remit.system.artifact_files import read_inside
from remit.system.beneath import path_inside
from remit.system.git import NO_SUBMODULES

KINDS = {"research": "report", "plan": "plan", "revise": "plan"}
"""The artifact type that a command requires."""
MAX_BYTES = 16 << 20
BOARD_FILES = frozenset({"specs/state.json", "specs/TODO.md"})
REASON_CHARACTERS = 300
CLOCK_LAG_SECONDS = 2.0
"""Files have another clock, with a resolution of whole seconds on some disks."""
MAX_NAMES = 10
STOPPED = frozenset({"TIMEOUT", "CANCELLED", "AGENT_CRASHED"})
"""Errors after which the same command resumes the work."""
_TASK_FOLDER = re.compile(r"(\./)*specs/+(\d+_|archive/)")
_PROSE = re.compile(r"(^|/)\.remit/scratch/(.*/)?answer[^/]*$")
"""The text around a return, which is also kept as a file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """The report or plan of a run."""

    data: bytes
    summary: str = ""
    came_from: str = ""
    """Where it was found, if not at the wanted path; `data` is then written there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    status: returns.Status
    summary: str = ""
    moves_to: Status | None = None
    """The task's new marker; None: that of the command."""
    is_undone: bool = False
    """Refused without running: task and phase are reset."""
    reason: str = ""
    """Why it is blocked, for a line of TODO.md."""
    errors: tuple[ErrorInfo, ...] = ()
    document: Document | None = None
    faults: tuple[str, ...] = ()
    """Faults of the plan, one sentence each."""
    artifacts: tuple[Artifact, ...] = ()
    """Files of an implementation in the project."""
    deleted: tuple[str, ...] = ()
    commit: str = ""
    """Commit on the branch of the task's worktree."""
    not_its_own: tuple[str, ...] = ()
    """Named by the agent, but belonging to the board, another task or git: never committed as its work."""

    @property
    def is_done(self) -> bool:
        return self.status is returns.Status.COMPLETED

    @property
    def files(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(artifact.path for artifact in self.artifacts))

    def phase_status(self, before: PhaseStatus) -> PhaseStatus:
        """The marker of the executed phase."""
        if self.is_undone:
            return before
        if self.status is returns.Status.BLOCKED:
            return PhaseStatus.BLOCKED
        return PhaseStatus.COMPLETED if self.is_done else PhaseStatus.PARTIAL


def _verdict(result: Return, **more: Any) -> Verdict:
    """The verdict of a return's status alone."""
    if result.stop_reason is StopReason.REFUSED:
        return Verdict(status=result.status, summary=result.summary, is_undone=True, errors=result.errors, **more)
    verdict = Verdict(status=result.status, summary=result.summary, errors=result.errors, **more)
    if result.status is not returns.Status.BLOCKED:
        return verdict
    said = result.errors[0].message if result.errors else result.summary
    return replace(verdict, moves_to=Status.BLOCKED, reason=one_line(said, REASON_CHARACTERS) or "The agent gave no reason.")


def stays_inside(root: Path, path: str) -> bool:
    """Whether it is in the board's folder: slugs and links are untrusted, and must not lead a report out of it."""
    place, specs = root / path, root / SPECS
    return not place.is_symlink() and path_inside(root, specs) is not None and path_inside(specs, place) is not None


# ---- reports and plans


def judge_document(root: Path, brief: Brief, result: Return) -> Verdict:
    # A link that the agent created is neither read nor written through.
    is_safe = result.stop_reason is not StopReason.REFUSED and stays_inside(root, brief.write_to)
    kind = KINDS[brief.command]
    found = find_document(root, result, kind, _candidates(brief, result), brief.write_to, brief.refused) if is_safe else None
    verdict = _verdict(result, document=found)
    if verdict.is_undone or verdict.moves_to is not None:
        return verdict
    if not verdict.is_done:
        return replace(verdict, errors=tuple(_with_resume_command(error, brief, result) for error in result.errors))
    faults = _plan_faults(root, brief, found) if found is not None and kind == "plan" else ()
    code, fault = _fault(brief, result, found, faults)
    if not fault:
        return replace(verdict, moves_to=DONE[BEGINS[brief.command]])
    # An unusable document is kept in place, and linked as unfinished.
    again = f"The status stays [{BEGINS[brief.command].marker}]: run `remit {brief.command} {brief.task.number}` again."
    advice = f"{again} `remit show {result.session_id}` shows what it did."
    errors = tuple(new_error("validation", code, words, advice) for words in faults or (fault,))
    return replace(verdict, status=returns.Status.FAILED, summary=fault, errors=errors, faults=faults)


def _with_resume_command(error: ErrorInfo, brief: Brief, result: Return) -> ErrorInfo:
    """Advice to continue after a stop, as a board command."""
    if result.stop_reason is StopReason.FINISHED or error.code not in STOPPED:
        return error
    longer = "; --timeout gives it longer" if error.code == "TIMEOUT" else ""
    return replace(error, recommendation=f"`remit {brief.command} {brief.task.number}` resumes it{longer}.")


def next_path(root: Path, task: Task | None, folder: str, name: str) -> str:
    """`folder/name-001.md`: one more than any existing or linked number, so that nothing is overwritten."""
    pattern = re.compile(rf"{re.escape(name)}-(\d+)\.")
    linked = [*(one.path for one in task.artifacts), *(one.path for one in task.plan_versions)] if task is not None else []
    names = [path.rpartition("/")[2] for path in linked]
    if (root / folder).is_dir():
        names += os.listdir(root / folder)
    return f"{folder}/{name}-{1 + max((int(found[1]) for one in names if (found := pattern.match(one))), default=0):03d}.md"


def find_document(
    root: Path, result: Return, kind: str, candidates: Iterable[Artifact], write_to: str = "", but: bytes = b""
) -> Document | None:  # fmt: skip
    """At the wanted path; else one of these files that the return names; else the text of that kind in its data. Never `but`."""
    wanted = next((one for one in result.artifacts if one.path == write_to), Artifact(type=kind, path=write_to))
    for artifact in (*([wanted] if write_to else []), *candidates):
        data = _read_inside(root, artifact.path)
        if data is not None and data.strip() and data != but:
            return Document(data=data, summary=artifact.summary, came_from="" if artifact.path == write_to else artifact.path)
    text = result.data.get(kind) if isinstance(result.data, dict) else None
    data = text.encode("utf-8", "replace") if isinstance(text, str) and text.strip() not in ("", write_to) else but
    return Document(data=data, came_from="the data of its return") if data != but else None


def _candidates(brief: Brief, result: Return) -> Iterator[Artifact]:
    """Artifacts that may be the document: of its type and of this run.

    For a stopped run, only the wanted path in its own folder: other files that changed in the project may belong to anyone."""
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
    """A document with content: it is filed and committed."""
    data = read_inside(root, path, MAX_BYTES)
    return data if data and len(data) <= MAX_BYTES else None


def _plan_faults(root: Path, brief: Brief, found: Document) -> tuple[str, ...]:
    """For a template only faults that prevent its execution: it is copied from a person's words."""
    text = found.data.decode("utf-8", "replace")
    if brief.is_checked:
        return plan_faults(root, text, (_read_inside(root, brief.plan) or b"").decode("utf-8", "replace") if brief.plan else "")
    plan = read_plan(text)
    return plan.faults or ("No phase can be read.",) if plan.doubled or not plan.phases else ()


def _fault(brief: Brief, result: Return, found: Document | None, faults: Sequence[str]) -> tuple[str, str]:
    """Code and reason why a return that reports completed is not; empty: it is."""
    kind, agent = KINDS[brief.command], result.metadata.agent_type
    if found is None:
        is_large = any(one.path == brief.write_to and (one.size or 0) > MAX_BYTES for one in result.artifacts)
        missing = f"{brief.write_to} {f'has more than {MAX_BYTES >> 20} MiB' if is_large else 'is missing or empty'}"
        words = f"{agent} reports completed, but there is no {kind}: {missing}, and no other file of type {kind} was named."
        return "FILE_NOT_FOUND", words
    if not faults:
        return "", ""
    count = f"{len(faults)} faults" if faults[1:] else "a fault"
    return "VALIDATION_FAILED", f"The plan {brief.write_to} has {count}{', also after it was handed back once' if brief.refused else ''}."


# ---- implementations


def judge_work(root: Path, result: Return, own: str) -> Verdict:
    """`own`: the task's folder."""
    deleted = _deleted(root, result.data)
    named = dict.fromkeys((*(one.path for one in result.artifacts), *deleted))
    others = {path for path in named if _is_anothers(root, path, own)}
    there = [one for one in result.artifacts if (root / one.path).exists()]
    # The files of a stopped run were found, not named: remit itself writes board files meanwhile.
    not_its_own = tuple(path for path in named if path in others) if result.stop_reason is StopReason.FINISHED else ()
    verdict = _verdict(
        result,
        artifacts=tuple(one for one in there if one.path not in others and _parts(root, one.path)[0] != ".remit"),
        deleted=tuple(path for path in deleted if path not in others),
        not_its_own=not_its_own,
    )
    if verdict.is_undone:
        return replace(verdict, artifacts=(), deleted=())
    if verdict.is_done and not (verdict.artifacts or verdict.deleted):
        message = f"{result.metadata.agent_type} reports completed, but names no project file that it created or changed."
        advice = "Look at what it did (`git status`); then run it again, or mark the phase [COMPLETED] in the plan yourself."
        error = new_error("validation", "VALIDATION_FAILED", message, advice)
        return replace(verdict, status=returns.Status.FAILED, summary=error.message, errors=(error,))
    return replace(verdict, moves_to=Status.PARTIAL) if verdict.status is returns.Status.PARTIAL else verdict


def judge_placed(result: Return) -> Verdict:
    """For a run in the worktree of its task, which was checked by its changes before it was settled."""
    place = result.extra.get("workspace")
    place = place if isinstance(place, Mapping) and isinstance(place.get("changed"), list) else {}
    verdict = _verdict(
        result,
        artifacts=tuple(Artifact(type="implementation", path=str(path)) for path in place.get("changed", ())),
        deleted=tuple(map(str, place.get("deleted", ()))),
        commit=str(place.get("commit", "")),
    )
    return replace(verdict, moves_to=Status.PARTIAL) if verdict.status is returns.Status.PARTIAL else verdict


def _is_anothers(root: Path, path: str, own: str) -> bool:
    """Whether it belongs to git, the board or another task, links resolved."""
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
    """Paths that the agent reports as deleted and that are gone."""
    named = data.get("deleted") if isinstance(data, dict) else None
    if not isinstance(named, list):
        return ()
    paths = [one for one in named if isinstance(one, str) and one.strip() and one.isprintable() and not one.startswith(("/", ".remit/"))]
    return tuple(dict.fromkeys(one for one in paths if ".." not in one.split("/") and not (root / one).exists()))


# ---- files that changed while an agent worked


Changes = Mapping[str, tuple[int, int]]
"""Each file that differs from git, with its size and time; a removed file with (-1, -1)."""


def uncommitted_changes(root: Path, own: str) -> Changes | None:
    """`own`: the task's folder; other files of the board are omitted. None: no git, or it did not answer in time."""
    try:
        repository = find_repository(root, time.monotonic() + GIT_SECONDS)
        if repository is None:
            return None
        output = repository.git.run(
            "--no-optional-locks", "status", "--porcelain=v1", "-z", NO_SUBMODULES, "--untracked-files=all", "--no-renames"
        )
    except (RemitError, OSError):
        return None
    below = repository.prefix
    names = [os.fsdecode(entry[3:]) for entry in output.split(b"\0") if len(entry) > 3]
    inside = [name.removeprefix(below) for name in names if name.startswith(below)]
    ours = (".remit/", f"{SPECS}/")
    counted = [name for name in inside if not name.startswith(ours) or name.startswith(f"{own}/")]
    return {name: _stamp(root / name) for name in counted if TOOL_FOLDERS.isdisjoint(name.split("/")[:-1])}


def untouched_changes(root: Path, before: Changes | None, named: Collection[str]) -> tuple[str, ...]:
    """Files that were changed before the run and not by it."""
    return tuple(sorted(name for name in named if before is not None and name in before and before[name] == _stamp(root / name)))


def name_files(names: Collection[str]) -> str:
    return list_some(sorted(names), MAX_NAMES)


def _stamp(path: Path) -> tuple[int, int]:
    try:
        found = path.lstat()
    except OSError:
        return (-1, -1)
    return found.st_size, found.st_mtime_ns
