"""The ledger in an event loop: posting is cheap, writing happens on a thread."""

import subprocess
import sys
import time
from pathlib import Path

import pytest

from remit import ErrorInfo
from remit.runtime.error_ledger import ErrorLedger, ErrorOccurrence, LedgerWriter
from support.pace import allowed


def occurrence(message: str = "It broke.", agent: str = "digest") -> ErrorOccurrence:
    error = ErrorInfo(type="execution", message=message, code="X", recoverable=True, recommendation="")
    return ErrorOccurrence(error=error, agent=agent)


@pytest.fixture
def ledger(tmp_path: Path) -> ErrorLedger:
    return ErrorLedger(tmp_path / "errors.json")


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
    ledger.path.mkdir()  # a folder in place of the file
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
