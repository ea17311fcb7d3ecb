"""What a return of research, plan or revise comes to on the board (S6.6): judged by what is there, never by what the agent says of it.

Reads files, writes none: gives a `Verdict`, whose parts `course` writes as one change of the board. `implement` has rules of its own.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from remit.board.board import SPECS
from remit.board.plans import read_plan
from remit.board.statuses import BEGINS, DONE, Status
from remit.board.task import PlanVersion, Task, TaskArtifact
from remit.core import result as returns
from remit.core.errors import ErrorInfo
from remit.core.result import Artifact, Return, StopReason
from remit.flow.artifacts import Seen, inspect_artifact, read_bounded, seen_artifacts
from remit.orchestrator.prompts import Brief
from remit.orchestrator.working import moved_on

KINDS = {"research": "report", "plan": "plan", "revise": "plan"}
"""The type of artifact that a command must bring."""
LINKED_AS = {"report": "research"}
"""As the board names it."""
LARGEST_BYTES = 16 << 20
BOARD_FILES = frozenset({"specs/state.json", "specs/TODO.md"})
REASON_CHARACTERS = 300
CLOCK_LAG_SECONDS = 2.0
"""Files are dated by another clock than ours, on some disks by one that counts whole seconds."""
_STOPPED = frozenset({"TIMEOUT", "CANCELLED", "AGENT_CRASHED"})
_OF_A_TASK = re.compile(r"(\./)*specs/+(\d+_|archive/)")
_PROSE = "answer"
_PROSE_OF = re.compile(r"(^|/)\.remit/scratch/")


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """The report or plan that a run has brought."""

    data: bytes
    summary: str = ""
    came_from: str = ""
    """Where it was, when not where it was wanted; `data` is then written there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    status: returns.Status
    moves_to: Status | None = None
    """None: the task keeps the marker of the command."""
    is_undone: bool = False
    """Nothing ran: the task goes back to where it was."""
    reason: str = ""
    found: Found | None = None
    more: tuple[Artifact, ...] = ()
    """Other files that it made in the task's folder."""
    errors: tuple[ErrorInfo, ...] = ()
    warnings: tuple[str, ...] = ()


def judged_return(root: Path, brief: Brief, result: Return) -> Verdict:
    """Blocking: looks at the files."""
    found = _found(root, brief, result)
    more = tuple(_others(brief, result))
    if result.stop_reason is StopReason.REFUSED:
        return Verdict(status=result.status, is_undone=True, errors=result.errors)
    if result.status is returns.Status.BLOCKED:
        reason = _one_line(result.errors[0].message if result.errors else result.summary)
        return Verdict(status=result.status, moves_to=Status.BLOCKED, reason=reason, found=found, more=more, errors=result.errors)
    if result.status is not returns.Status.COMPLETED:
        errors = tuple(_as_of_the_board(error, brief, result) for error in result.errors)
        return Verdict(status=result.status, found=found, more=more, errors=errors)
    fault = _fault(brief, result, found)
    if fault is not None:
        # What cannot be used is kept where it is, and linked as what it is: unfinished.
        return Verdict(status=returns.Status.FAILED, found=found, more=more, errors=(fault,))
    assert found is not None, "what is missing is a fault"
    moved = (f"The {KINDS[brief.command]} was taken over from {found.came_from}.",) if found.came_from else ()
    return Verdict(status=result.status, moves_to=DONE[BEGINS[brief.command]], found=found, more=more, warnings=moved)


def _as_of_the_board(error: ErrorInfo, brief: Brief, result: Return) -> ErrorInfo:
    """How to go on after a stop, in the words of the board: the flow can only say to delegate again."""
    if result.stop_reason is StopReason.FINISHED or error.code not in _STOPPED:
        return error
    longer = "; --timeout gives it longer" if error.code == "TIMEOUT" else ""
    return replace(error, recommendation=f"`remit {brief.command} {brief.task.number}` takes it up again{longer}.")


def filed_task(task: Task, at: str, brief: Brief, verdict: Verdict, before: Status | None) -> tuple[Task, tuple[str, ...]]:
    """The task with its new marker, links and plan versions; warnings where a person has moved it meanwhile."""
    warnings: tuple[str, ...] = ()
    begun = BEGINS[brief.command]
    if verdict.is_undone and before is not None and task.status is begun:
        task = replace(task, status=before, started=brief.task.started, blocking_reason=brief.task.blocking_reason)
    elif verdict.moves_to is not None:
        task, warnings = moved_on(task, begun, verdict.moves_to, at, reason=verdict.reason)
    is_done = verdict.status is returns.Status.COMPLETED
    if verdict.found is not None:
        kind = KINDS[brief.command]
        extra = {} if is_done else {"partial": True}
        link = TaskArtifact(type=LINKED_AS.get(kind, kind), path=brief.write_to, summary=verdict.found.summary, extra=extra)
        task = _with_link(task, link)
        if is_done and kind == "plan":
            task = _with_plan(task, at, brief)
    for artifact in verdict.more:
        task = _with_link(task, TaskArtifact(type=artifact.type, path=artifact.path, summary=artifact.summary))
    return task, warnings


def next_number(root: Path, task: Task, folder: str, name: str) -> int:
    """For `folder/name-001.md`: one more than any that is there or was linked, so that nothing is written over."""
    pattern = re.compile(rf"{re.escape(name)}-(\d+)\.")
    names = [one.path.rpartition("/")[2] for one in task.artifacts] + [one.path.rpartition("/")[2] for one in task.plan_versions]
    place = root / task.folder / folder
    if place.is_dir():
        names += [entry.name for entry in place.iterdir()]
    return 1 + max((int(found[1]) for one in names if (found := pattern.match(one))), default=0)


def next_version(task: Task) -> int:
    """Of its plan."""
    return 1 + max([1 if task.plan_path else 0, *(one.version for one in task.plan_versions)])


def checked(root: Path, brief: Brief, verdict: Verdict) -> tuple[Artifact, ...]:
    """The files of the work as they now are, seen with size and hash."""
    listed = []
    if verdict.found is not None:
        listed.append(Artifact(type=KINDS[brief.command], path=brief.write_to, summary=verdict.found.summary))
    return seen_artifacts(root, (*listed, *verdict.more))


def stays_inside(root: Path, path: str) -> bool:
    """Whether it lies in the board's folder: slugs and links are other people's, and neither may lead a report out of it."""
    place = root / path
    return not place.is_symlink() and place.resolve().is_relative_to((root / SPECS).resolve())


def _found(root: Path, brief: Brief, result: Return) -> Found | None:
    """Where it was wanted; else the file of its type that the return names; else the text in its data."""
    if not stays_inside(root, brief.write_to):
        return None  # neither read nor, by taking over another file, written: the agent has put a link there
    listed = {artifact.path: artifact for artifact in result.artifacts}
    there = _read_inside(root, brief.write_to)
    if there is not None and there.strip():
        return Found(data=there, summary=listed[brief.write_to].summary if brief.write_to in listed else "")
    for artifact in _of_kind(brief, result):
        data = _read_inside(root, artifact.path)
        if data is not None and data.strip():
            return Found(data=data, summary=artifact.summary, came_from=artifact.path)
    text = _text_in(result.data, KINDS[brief.command])
    return Found(data=text.encode(), came_from="the data of its return") if text.strip() else None


def _of_kind(brief: Brief, result: Return) -> Iterator[Artifact]:
    """Those that may be the work: of its type, of this run, and not the prose round a return, which is kept as a file too.

    Of a run that was stopped, only what has the place that was asked for, in a folder of its own: what was found changed in the project
    at that moment may be anybody's.
    """
    known = {one.path for one in brief.task.artifacts} | {brief.plan, *brief.reports}
    was_stopped = result.stop_reason is not StopReason.FINISHED
    for artifact in result.artifacts:
        path = artifact.path
        is_prose = bool(_PROSE_OF.search(path)) and path.rpartition("/")[2].startswith(_PROSE)
        is_old = artifact.mtime is not None and artifact.mtime < brief.begun_at - CLOCK_LAG_SECONDS
        is_anothers = bool(_OF_A_TASK.match(path)) and not path.startswith(f"{brief.task.folder}/")
        if path in known or path in BOARD_FILES or is_prose or is_old or is_anothers:
            continue
        if path.endswith(f"/{brief.write_to}") or (artifact.type == KINDS[brief.command] and not was_stopped):
            yield artifact


def _others(brief: Brief, result: Return) -> Iterator[Artifact]:
    known = {one.path for one in brief.task.artifacts} | {brief.plan, *brief.reports, brief.write_to}
    for artifact in result.artifacts:
        if artifact.path.startswith(f"{brief.task.folder}/") and artifact.path not in known:
            yield artifact


def _read_inside(root: Path, path: str) -> bytes | None:
    """Checked again here: only what lies inside the project, and no link that leads out."""
    if not isinstance(inspect_artifact(root, path), Seen):
        return None
    data = read_bounded((root / path).resolve(), LARGEST_BYTES)
    return data if data is not None and len(data) <= LARGEST_BYTES else None


def _text_in(data: Any, kind: str) -> str:
    text = data.get(kind) if isinstance(data, dict) else None
    return text if isinstance(text, str) else ""


def _fault(brief: Brief, result: Return, found: Found | None) -> ErrorInfo | None:
    """Why a return that says completed is not."""
    kind, agent = KINDS[brief.command], result.metadata.agent_type
    if found is None:
        large = f"has more than {LARGEST_BYTES >> 20} MiB" if _is_too_large(brief, result) else "is missing or empty"
        missing = f"{brief.write_to} {large}, and no other file of type {kind} was named"
        return _error("FILE_NOT_FOUND", f"{agent} says completed, but there is no {kind}: {missing}.", brief, result)
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


def _is_too_large(brief: Brief, result: Return) -> bool:
    return any(one.path == brief.write_to and (one.size or 0) > LARGEST_BYTES for one in result.artifacts)


def _with_link(task: Task, link: TaskArtifact) -> Task:
    kept = tuple(one for one in task.artifacts if one.path != link.path)
    return replace(task, artifacts=(*kept, link))


def _with_plan(task: Task, at: str, brief: Brief) -> Task:
    """The plan of now, and its version; the first one of an older board is remembered as such."""
    versions = task.plan_versions
    if task.plan_path and task.plan_path != brief.write_to and not any(one.path == task.plan_path for one in versions):
        versions = (*versions, PlanVersion(version=max(1, brief.version - 1), path=task.plan_path))
    if all(one.path != brief.write_to for one in versions):
        versions = (*versions, PlanVersion(version=brief.version, path=brief.write_to, created=at, reason=brief.focus))
    return replace(task, plan_path=brief.write_to, plan_versions=versions)


def _one_line(text: str) -> str:
    """What an agent says, fit for a line of TODO.md: no control characters, none that turn the direction of writing."""
    words = " ".join("".join(sign if sign.isprintable() else " " for sign in text).split())
    return words if len(words) <= REASON_CHARACTERS else words[: REASON_CHARACTERS - 1] + "…"
