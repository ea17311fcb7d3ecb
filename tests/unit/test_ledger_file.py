"""The error ledger: its file, and its writer on a thread."""

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from remit import Clock, ErrorInfo
from remit.runtime.error_ledger import Entry, ErrorLedger, ErrorOccurrence, Fix, LedgerWriter
from support.pace import allowed

MOMENT = 1766743200.0  # 2025-12-26T10:00:00Z


class Wall:
    def __init__(self) -> None:
        self.now = MOMENT

    def __call__(self) -> float:
        return self.now


def occurrence(message: str = "It broke.", *, type: str = "execution", code: str = "UNKNOWN_ERROR", **where: Any) -> ErrorOccurrence:
    error = ErrorInfo(type=type, message=message, code=code, recoverable=True, recommendation="Try again.")
    return ErrorOccurrence(error=error, **{"agent": "digest", **where})


@pytest.fixture
def wall() -> Wall:
    return Wall()


@pytest.fixture
def ledger(tmp_path: Path, wall: Wall) -> ErrorLedger:
    return ErrorLedger(tmp_path / ".remit" / "errors.json", Clock(wall=wall))


def only(ledger: ErrorLedger) -> Entry:
    [entry] = ledger.entries()
    return entry


def test_file_has_the_documented_format(ledger: ErrorLedger) -> None:
    session = "sess_1766743200_abc123"
    where: dict[str, Any] = {"task_number": 195, "path": ("orchestrator", "digest"), "stack_trace": "Traceback …"}
    ledger.note([occurrence(session_id=session, root_id=session, **where)])
    document = json.loads(ledger.path.read_text())
    assert document["_schema_version"] == "1.0.0"
    assert document["_last_updated"] == "2025-12-26T10:00:00.000Z"
    [entry] = document["errors"]
    assert list(entry) == [
        "id", "timestamp", "type", "severity", "context", "message", "stack_trace", "fix_status", "fix_plan_ref", "fix_task_ref",
        "recurrence_count", "first_seen", "last_seen", "related_errors",
    ]  # fmt: skip
    assert entry["timestamp"] == entry["first_seen"] == entry["last_seen"] == "2025-12-26T10:00:00.000Z"
    assert entry["fix_status"] == "not_addressed"
    assert entry["context"]["task_number"] == 195
    assert entry["context"]["delegation_path"] == ["orchestrator", "digest"]


def test_similar_errors_are_one_entry_with_a_count(ledger: ErrorLedger, wall: Wall) -> None:
    ledger.note([occurrence("Cannot read 'a.txt' in /tmp/x1 after 3 s (sess_1766743200_abc123)", session_id="first")])
    wall.now += 60
    ledger.note([occurrence('Cannot read "b" in ./docs/y.md after 0.5 s (sess_1766743299_zzzzzz)', session_id="second")])
    entry = only(ledger)
    assert entry.recurrence_count == 2
    assert (entry.first_seen, entry.last_seen) == ("2025-12-26T10:00:00.000Z", "2025-12-26T10:01:00.000Z")
    assert entry.context["session_id"] == "second"


@pytest.mark.parametrize(
    "different",
    [occurrence(type="validation"), occurrence(code="BUILD_ERROR"), occurrence(agent="other"), occurrence("Another thing broke.")],
)
def test_other_type_code_agent_or_message_is_another_entry(ledger: ErrorLedger, different: ErrorOccurrence) -> None:
    ledger.note([occurrence(), different])
    assert len(ledger.entries()) == 2


def test_severity_is_high_and_medium_for_timeouts(ledger: ErrorLedger) -> None:
    ledger.note([occurrence(), occurrence(type="timeout", code="TIMEOUT")])
    assert {e.type: e.severity for e in ledger.entries()} == {"execution": "high", "timeout": "medium"}


@pytest.mark.parametrize(
    "nothing",
    [
        occurrence("On branch main\nnothing to commit, working tree clean", type="git", code="GIT_COMMIT_FAILED"),
        occurrence("git commit failed: nothing added to commit but untracked files present"),
    ],
)
def test_nothing_to_commit_is_not_an_error(ledger: ErrorLedger, nothing: ErrorOccurrence) -> None:
    ledger.note([nothing])
    assert not ledger.path.exists()
    assert ledger.entries() == []


@pytest.mark.parametrize("damaged", [b"", b'{"errors": [{"id"', b"[]", b'{"errors": {}}', b"\xff\x00"])
def test_damaged_file_is_set_aside_and_never_overwritten(ledger: ErrorLedger, damaged: bytes) -> None:
    ledger.path.parent.mkdir()
    ledger.path.write_bytes(damaged)
    ledger.note([occurrence()])
    assert only(ledger).message == "It broke."
    assert ledger.set_aside_path is not None
    assert ledger.set_aside_path.name == "errors.json.damaged-20251226T100000"
    assert ledger.set_aside_path.read_bytes() == damaged


def test_valid_entries_of_a_damaged_file_are_kept(ledger: ErrorLedger) -> None:
    ledger.note([occurrence()])
    document = json.loads(ledger.path.read_text())
    document["errors"].append({"id": 7})
    ledger.path.write_text(json.dumps(document))
    assert only(ledger).message == "It broke."
    assert ledger.set_aside_path is not None
    assert '"id": 7' in ledger.set_aside_path.read_text()


def test_fields_and_entries_of_other_programs_are_kept(ledger: ErrorLedger) -> None:
    ledger.note([occurrence()])
    document = json.loads(ledger.path.read_text())
    foreign = {"id": "error_001", "timestamp": "2025-01-01T00:00:00Z", "type": "git", "message": "m", "stack_trace": None, "owner": "me"}
    document = {**document, "errors": [*document["errors"], foreign, {**foreign, "id": "error_002"}], "_note": "by hand"}
    ledger.path.write_text(json.dumps(document))
    ledger.note([occurrence("Something else.")])
    after = json.loads(ledger.path.read_text())
    assert after["_note"] == "by hand"
    assert [e.get("owner") for e in after["errors"]] == [None, "me", "me", None]
    assert ledger.set_aside_path is None


def test_fix_is_stored_and_a_recurrence_reopens_the_entry(ledger: ErrorLedger) -> None:
    ledger.note([occurrence()])
    fix = Fix(status="resolved", plan_ref="specs/007_fix/plans/implementation-001.md", task_ref=7)
    assert ledger.set_fixes({only(ledger).id: fix, "error_gone": fix}) == (only(ledger).id,)
    ledger.note([occurrence()])
    again = only(ledger)
    assert (again.fix_status, again.fix_task_ref) == ("not_addressed", 7)
    assert again.fix_plan_ref == "specs/007_fix/plans/implementation-001.md"


def test_file_is_bounded_and_keeps_the_latest_entries(tmp_path: Path, wall: Wall) -> None:
    ledger = ErrorLedger(tmp_path / "errors.json", Clock(wall=wall), limit=3)
    for name in "abcde":
        ledger.note([occurrence(agent=name)])
        wall.now += 1
    ledger.note([occurrence(agent="c")])
    assert [e.context["agent"] for e in ledger.entries()] == ["c", "e", "d"]


PROCESS = """
import sys
import time
from pathlib import Path
from remit.core.errors import ErrorInfo
from remit.runtime.error_ledger import ErrorLedger, ErrorOccurrence
ledger = ErrorLedger(Path(sys.argv[1]))
for turn in range(25):
    for agent in ("shared", sys.argv[2]):
        error = ErrorInfo(type="execution", message=f"Turn {turn} broke", code="X", recoverable=False, recommendation="")
        ledger.note([ErrorOccurrence(error=error, agent=agent)])
"""


def test_concurrent_processes_lose_no_error(tmp_path: Path) -> None:
    path = tmp_path / "errors.json"
    processes = [subprocess.Popen([sys.executable, "-c", PROCESS, str(path), f"own-{n}"]) for n in "ab"]
    assert [p.wait(60) for p in processes] == [0] * 2
    counts = {e.context["agent"]: e.recurrence_count for e in ErrorLedger(path).entries()}
    assert counts == {"shared": 50, "own-a": 25, "own-b": 25}
    assert sorted(p.name for p in tmp_path.iterdir()) == ["errors.json", "errors.json.lock"]


# ---- the writer


def test_thousands_of_errors_are_counted_at_little_cost(ledger: ErrorLedger) -> None:
    writer = LedgerWriter(ledger)
    began = time.perf_counter()
    for number in range(1_000):
        writer.post(occurrence(f"Child {number} of sess_1766743200_abc123 broke"))
    assert time.perf_counter() - began < allowed(2.0)
    assert writer.close(20)
    [entry] = ledger.entries()
    assert entry.recurrence_count == 1_000


def test_errors_are_kept_while_the_file_cannot_be_written(ledger: ErrorLedger) -> None:
    ledger.path.mkdir(parents=True)  # a folder in place of the file
    writer = LedgerWriter(ledger)
    writer.post(occurrence())
    assert not writer.flush(5)
    assert "Cannot read" in writer.trouble
    ledger.path.rmdir()
    writer.post(occurrence())
    assert writer.flush(5)
    assert writer.trouble == ""
    assert ledger.entries()[0].recurrence_count == 2
    assert writer.close()


def test_program_that_exits_without_closing_loses_no_error(ledger: ErrorLedger) -> None:
    program = (
        "import sys; from pathlib import Path; from remit.core.errors import ErrorInfo; from remit.runtime.error_ledger import *\n"
        "error = ErrorInfo(type='execution', message='late', code='X', recoverable=False, recommendation='')\n"
        "LedgerWriter(ErrorLedger(Path(sys.argv[1]))).post(ErrorOccurrence(error=error, agent='a'))\n"
    )
    subprocess.run([sys.executable, "-c", program, str(ledger.path)], check=True, timeout=30)
    assert ledger.entries()[0].message == "late"
