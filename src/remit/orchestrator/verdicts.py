"""What a return of an implementation comes to: whether the phase is done, what its marker and the task's become, and what is committed.

The rules of S6.6 and S6.7, by program code. Looks at the files that the return names; writes nothing.
"""

import os
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from remit.board.board import SPECS
from remit.board.statuses import PhaseStatus, Status
from remit.core.errors import ErrorInfo
from remit.core.result import Artifact, Return, StopReason
from remit.core.result import Status as Said

REASON_LENGTH = 300
_OF_A_TASK = re.compile(r"\d+_|archive$")
"""Folders of the board that belong to tasks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    is_done: bool
    status: str
    """Of the outcome: completed, partial, failed, blocked."""
    phase: PhaseStatus | None
    """The phase's marker from now on; None: what it was before, for nothing ran."""
    task: Status | None
    """The task's, when the work stops here; None: it stays as it is."""
    summary: str
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


def verdict_of(root: Path, result: Return, own: str) -> Verdict:
    """`own`: the task's folder."""
    verdict = _judged(root, result, own)
    named = (*(one.path for one in result.artifacts), *_deleted(root, result.data))
    return replace(verdict, not_its_own=tuple(path for path in dict.fromkeys(named) if _is_anothers(root, path, own)))


def _judged(root: Path, result: Return, own: str) -> Verdict:
    artifacts = tuple(one for one in result.artifacts if _is_work(root, one.path, own))
    deleted = tuple(path for path in _deleted(root, result.data) if not _is_anothers(root, path, own))
    if result.status is Said.COMPLETED and (artifacts or deleted):
        return Verdict(
            is_done=True, status="completed", phase=PhaseStatus.COMPLETED, task=None, summary=result.summary,
            artifacts=artifacts, deleted=deleted,
        )  # fmt: skip
    if result.status is Said.COMPLETED:
        error = _nothing_made(result)
        return Verdict(is_done=False, status="failed", phase=PhaseStatus.PARTIAL, task=None, summary=error.message, errors=(error,))
    if result.stop_reason is StopReason.REFUSED:
        return Verdict(
            is_done=False, status=str(result.status), phase=None, task=None, is_undone=True, summary=result.summary, errors=result.errors
        )
    phase = PhaseStatus.BLOCKED if result.status is Said.BLOCKED else PhaseStatus.PARTIAL
    task = {Said.PARTIAL: Status.PARTIAL, Said.BLOCKED: Status.BLOCKED}.get(result.status)
    said = result.errors[0].message if result.errors else result.summary
    reason = " ".join("".join(sign if sign.isprintable() else " " for sign in said).split())[:REASON_LENGTH]
    return Verdict(
        is_done=False, status=str(result.status), phase=phase, task=task, summary=result.summary, errors=result.errors,
        reason=reason or "The agent did not say why.", artifacts=artifacts, deleted=deleted,
    )  # fmt: skip


def _is_work(root: Path, path: str, own: str) -> bool:
    """A file of the project: not remit's own, not the board's, not another task's, still there."""
    return (root / path).exists() and not _is_anothers(root, path, own) and _inside(root, path)[0] != ".remit"


def _is_anothers(root: Path, path: str, own: str) -> bool:
    """Wherever links lead to."""
    parts = _inside(root, path)
    if ".git" in (part.lower() for part in parts):
        return True
    if parts[0] != SPECS or "/".join(parts[:2]) == own:
        return False
    return parts[1:] in (("state.json",), ("TODO.md",)) or (len(parts) > 2 and bool(_OF_A_TASK.match(parts[1])))


def _inside(root: Path, path: str) -> tuple[str, ...]:
    """The parts of its name from the root."""
    top = os.path.realpath(root)
    return tuple(os.path.relpath(os.path.realpath(os.path.join(top, path)), top).split(os.sep))


def _deleted(root: Path, data: Any) -> tuple[str, ...]:
    """Paths that the agent says it deleted, as far as they are gone; whether git knew them is git's to say."""
    named = data.get("deleted") if isinstance(data, dict) else None
    if not isinstance(named, list):
        return ()
    paths = [one for one in named if isinstance(one, str) and one.strip() and one.isprintable() and not one.startswith(("/", ".remit/"))]
    return tuple(dict.fromkeys(one for one in paths if ".." not in one.split("/") and not (root / one).exists()))


def _nothing_made(result: Return) -> ErrorInfo:
    """Completed, and nothing to show for it in the project."""
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
