"""The audit log: shared by processes, and readable after a crash."""

import json
import multiprocessing
from pathlib import Path

import pytest

from remit import Unavailable
from remit.core.redaction import register_secrets
from remit.policy.audit import FILE, AuditLog, entries, entry_text


def write(folder: Path, *names: str) -> None:
    log = AuditLog(folder)
    for name in names:
        log.write([entry_text({"event": "decided", "sessions": [name]})])
    log.close()


def sessions(folder: Path) -> list[str]:
    return [name for entry in entries(folder) for name in entry["sessions"]]


def test_lines_of_all_writers_are_kept_in_order(tmp_path: Path) -> None:
    write(tmp_path, "a", "b")
    write(tmp_path, "c")
    assert sessions(tmp_path) == ["a", "b", "c"]
    assert [entry["number"] for entry in entries(tmp_path)] == [1, 2, 3]
    assert (tmp_path / FILE).stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("kept", [1, 30, 60])
def test_line_torn_by_a_crash_costs_no_other_line(tmp_path: Path, kept: int) -> None:
    write(tmp_path, "a", "b")
    data = (tmp_path / FILE).read_bytes()
    cut = data[: data.index(b"\n") + 1 + kept]
    (tmp_path / FILE).write_bytes(cut)
    write(tmp_path, "c")
    assert (tmp_path / FILE).read_bytes().startswith(cut)
    assert sessions(tmp_path) == ["a", "c"]


def test_file_that_was_rotated_is_read_first_and_no_longer_written(tmp_path: Path) -> None:
    log = AuditLog(tmp_path)
    log.write([entry_text({"event": "decided", "sessions": ["first"]})])
    (tmp_path / FILE).rename(tmp_path / "audit-00001.jsonl")
    log._look_at = 0.0
    log.write([entry_text({"event": "decided", "sessions": ["second"]})])
    log.close()
    assert sessions(tmp_path) == ["first", "second"]
    assert len((tmp_path / FILE).read_bytes().splitlines()) == 1


def _write_many(folder: str, name: str) -> None:
    write(Path(folder), *(f"{name}{number}" for number in range(60)))


def test_several_processes_lose_no_line(tmp_path: Path) -> None:
    processes = [multiprocessing.get_context("fork").Process(target=_write_many, args=(str(tmp_path), name)) for name in "abc"]
    for process in processes:
        process.start()
    for process in processes:
        process.join(30)
    assert [process.exitcode for process in processes] == [0] * 3
    assert sorted(sessions(tmp_path)) == sorted(f"{name}{number}" for name in "abc" for number in range(60))


def test_link_in_place_of_the_log_is_not_followed(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("mine")
    (tmp_path / FILE).symlink_to(victim)
    with pytest.raises(Unavailable):
        AuditLog(tmp_path).write([entry_text({"event": "decided"})])
    assert victim.read_text() == "mine"


def test_agent_cannot_hide_its_actions_by_declaring_them_secret(tmp_path: Path) -> None:
    held = register_secrets({"password": ["worker.delete_file", "decided", "sess_1_abc", "caller"]})
    entry = json.loads(
        b"{%b}" % entry_text({"event": "decided", "action": "worker.delete_file", "caller": "caller", "sessions": ["sess_1_abc"]})
    )
    assert entry == {"event": "decided", "action": "worker.delete_file", "caller": "caller", "sessions": ["sess_1_abc"]}
    said = json.loads(b"{%b}" % entry_text({"action": "worker.delete_file", "on_the_way": True, "by": "caller"}))
    assert said == {"action": "[redacted]", "on_the_way": True, "by": "[redacted]"}
    assert held is not None
