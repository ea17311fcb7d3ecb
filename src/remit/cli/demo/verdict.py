"""Whether the demo showed what it promises: four parts, judged by what the store recorded, not by what the agents say of themselves."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from remit.cli.demo.promises import HALF_FILE, STUCK_SECONDS
from remit.cli.words import count, duration, size
from remit.core.record import Record
from remit.core.result import Artifact, Return, Status
from remit.core.states import State

GRACE_SECONDS = 1.0
"""S2.5: the return arrives by the hard deadline plus at most this."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    title: str
    is_kept: bool
    detail: str

    def to_dict(self) -> dict[str, Any]:
        return {"part": self.title, "ok": self.is_kept, "detail": self.detail}


def judged(root: Path, result: Return, records: Sequence[Record]) -> list[Part]:
    by_agent: dict[str, list[Record]] = {}
    for record in records:
        by_agent.setdefault(record.agent, []).append(record)
    return [
        _work(root, result, records),
        _hang(root, by_agent.get("demo.stuck", [])),
        _prose(by_agent.get("demo.prose", [])),
        _cycle(by_agent.get("demo.survey", [])),
    ]


def _work(root: Path, result: Return, records: Sequence[Record]) -> Part:
    depth = max((record.depth for record in records if record.state is State.COMPLETED), default=0)
    report = next((a for a in result.artifacts if _stands(root, a)), None)
    is_kept = result.ok and depth >= 3 and report is not None
    if not is_kept or report is None:
        why = result.errors[0].message if result.errors else "no report was written"
        return Part(title="Real work, nested three deep", is_kept=False, detail=f"{result.status}: {why}")
    figures = result.data if isinstance(result.data, dict) else {}
    measured = f"{count(figures.get('measured', 0), 'file')} and {count(figures.get('lines', 0), 'line')} measured"
    detail = f"{count(len(records), 'delegation')}, {measured}; {report.path} ({size(report.size or 0)}, {report.evidence})"
    return Part(title="Real work, nested three deep", is_kept=True, detail=detail)


def _hang(root: Path, records: Sequence[Record]) -> Part:
    title = "A child hung"
    result = records[0].result if records else None
    if result is None:
        return Part(title=title, is_kept=False, detail="demo.stuck never answered")
    half = next((a for a in result.artifacts if a.path.endswith(HALF_FILE) and _stands(root, a)), None)
    seconds = result.metadata.duration_seconds
    is_kept = result.status is Status.PARTIAL and half is not None and seconds <= STUCK_SECONDS + GRACE_SECONDS
    kept = f"its half-written {half.path} ({size(half.size or 0)})" if half else "no file"
    detail = f"it spun for ever, was killed at its deadline and came back {result.status} after {duration(seconds)} with {kept}"
    return Part(title=title, is_kept=is_kept, detail=detail)


def _prose(records: Sequence[Record]) -> Part:
    result = records[0].result if records else None
    is_repaired = result is not None and result.ok and any("repaired" in warning for warning in result.warnings)
    detail = "no JSON in its answer: it was asked once more with the exact fault, and its second answer was accepted"
    return Part(title="A child answered in prose", is_kept=is_repaired, detail=detail if is_repaired else "its answer was not repaired")


def _cycle(surveys: Sequence[Record]) -> Part:
    title = "A cycle was refused"
    refused = next((record for record in surveys if record.state is State.REFUSED and record.result), None)
    if refused is None or refused.result is None:
        return Part(title=title, is_kept=False, detail="demo.circle was not kept from calling its caller")
    error = refused.result.errors[0]
    is_kept = error.code == "CYCLE_DETECTED" and refused.started_at is None
    return Part(title=title, is_kept=is_kept, detail=f"{error.code}: {' → '.join(refused.path)}; nothing ran")


def _stands(root: Path, artifact: Artifact) -> bool:
    try:
        return (root / artifact.path).stat().st_size == artifact.size
    except OSError:
        return False
