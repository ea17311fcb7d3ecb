"""The audit log: hash-chained, shared by processes, intact after a crash, and tamper-evident."""

import json
import multiprocessing
import os
import time
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remit import Unavailable
from remit.core.redaction import register_secrets
from remit.policy.audit import FILE, AuditLog, check_log, entries, entry_text


def write(folder: Path, *names: str, full_bytes: int = 10**9) -> None:
    log = AuditLog(folder, full_bytes=full_bytes)
    for name in names:
        log.write([entry_text({"event": "decided", "sessions": [name]})])
    log.close()


def findings(folder: Path, head: str | None = None) -> list[str]:
    return [finding.what for finding in check_log(folder, head).findings]


def test_lines_are_numbered_and_chained_across_writers(tmp_path: Path) -> None:
    write(tmp_path, "a", "b")
    write(tmp_path, "c")
    checked = check_log(tmp_path)
    assert (checked.findings, checked.lines, checked.sessions) == ([], 3, {"a", "b", "c"})
    assert [entry["number"] for entry in entries(tmp_path)] == [1, 2, 3]
    assert (tmp_path / FILE).stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("kept", [1, 40, 100])
def test_line_torn_by_a_crash_is_kept_and_noted(tmp_path: Path, kept: int) -> None:
    write(tmp_path, "a", "b")
    data = (tmp_path / FILE).read_bytes()
    cut = data[: data.index(b"\n") + 1 + kept]
    (tmp_path / FILE).write_bytes(cut)
    write(tmp_path, "c")
    checked = check_log(tmp_path)
    assert (checked.findings, checked.torn) == ([], 1)
    assert (tmp_path / FILE).read_bytes().startswith(cut)
    assert [entry["event"] for entry in entries(tmp_path)] == ["decided", "recovered", "decided"]


def test_full_file_is_rotated_and_the_chain_continues(tmp_path: Path) -> None:
    other = AuditLog(tmp_path, full_bytes=1500)
    other.write([entry_text({"event": "decided", "sessions": ["first"]})])
    write(tmp_path, *(f"s{number}" for number in range(30)), full_bytes=1500)
    other.write([entry_text({"event": "decided", "sessions": ["last"]})])
    other.close()
    files = sorted(path.name for path in tmp_path.iterdir())
    assert len(files) > 3
    assert files[-1] == FILE
    checked = check_log(tmp_path)
    assert checked.findings == []
    assert {"first", "last", "s29"} <= checked.sessions


def test_changed_inserted_and_removed_lines_are_reported(tmp_path: Path) -> None:
    write(tmp_path, "a", "b", "c", "d")
    path = tmp_path / FILE
    lines = path.read_bytes().splitlines(keepends=True)

    path.write_bytes(b"".join(lines).replace(b'"b"', b'"x"'))
    assert findings(tmp_path) == ["line number 2 was changed: its hash does not fit what it says"]
    path.write_bytes(b"".join([lines[0], *lines[2:]]))
    assert findings(tmp_path) == ["line numbers 2 to 2 are missing: they were removed"]
    path.write_bytes(b"".join(lines[1:]))
    assert "begins with line number 2" in findings(tmp_path)[0]
    path.write_bytes(b"".join([lines[0], lines[1], lines[1], *lines[2:]]))
    assert "was inserted, or moved" in findings(tmp_path)[0]
    path.write_bytes(b"".join([lines[0], b"nonsense\n", *lines[1:]]))
    assert "cannot be read" in findings(tmp_path)[0]


def test_truncated_or_rewritten_log_differs_from_a_saved_head(tmp_path: Path) -> None:
    write(tmp_path, "a", "b", "c")
    head = check_log(tmp_path).head
    write(tmp_path, "d")
    assert findings(tmp_path, head) == []
    path = tmp_path / FILE
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:2]))
    assert findings(tmp_path) == []
    assert "no line has the hash" in findings(tmp_path, head)[0]
    path.unlink()
    write(tmp_path, "a", "b", "c")
    assert "no line has the hash" in findings(tmp_path, head)[0]


@given(st.data())
def test_any_changed_byte_is_detected(data: st.DataObject) -> None:
    with TemporaryDirectory() as place:
        folder = Path(place)
        write(folder, "a", "b", "c")
        head = check_log(folder).head
        path = folder / FILE
        text = bytearray(path.read_bytes())
        at = data.draw(st.integers(0, len(text) - 2))  # the last newline belongs to no line
        byte = data.draw(st.integers(0, 255).filter(lambda value: value != text[at]))
        text[at] = byte
        path.write_bytes(bytes(text))
        assert check_log(folder, head).findings


def test_link_in_place_of_the_log_is_not_followed(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("mine")
    (tmp_path / FILE).symlink_to(victim)
    with pytest.raises(Unavailable):
        AuditLog(tmp_path).write([entry_text({"event": "decided"})])
    assert victim.read_text() == "mine"


def _write_decisions(log: AuditLog, *names: str) -> None:
    for name in names:
        log.write([entry_text({"event": "decided", "verdict": "deny", "sessions": [name]})])


def _write_many(folder: str, name: str) -> None:
    write(Path(folder), *(f"{name}{number}" for number in range(60)), full_bytes=5000)


def test_several_processes_write_one_chain_over_many_files(tmp_path: Path) -> None:
    processes = [multiprocessing.get_context("fork").Process(target=_write_many, args=(str(tmp_path), name)) for name in "abc"]
    for process in processes:
        process.start()
    for process in processes:
        process.join(30)
    assert [process.exitcode for process in processes] == [0] * 3
    checked = check_log(tmp_path)
    assert (checked.findings, len(checked.sessions)) == ([], 180)


def test_rotation_interrupted_by_a_crash_is_finished(tmp_path: Path) -> None:
    write(tmp_path, "a")
    log = AuditLog(tmp_path)
    log.write([entry_text({"event": "rolled"})])
    log.close()
    write(tmp_path, "b")
    assert findings(tmp_path) == []
    assert sorted(path.name for path in tmp_path.iterdir()) == ["audit-00001.jsonl", FILE]


def test_tampering_while_the_log_is_open_is_detected(tmp_path: Path) -> None:
    """The writer knows the end of the chain, continues from there, and the gap is reported."""
    for number, tamper in enumerate((_cut_off, _moved_away, _written_anew)):
        folder = tmp_path / str(number)
        folder.mkdir()
        log = AuditLog(folder)
        _write_decisions(log, *"abcde")
        tamper(folder)
        time.sleep(0.25)  # the writer checks the name of the file at intervals
        _write_decisions(log, "f")
        log.close()
        assert any("removed" in what or "replaced" in what for what in findings(folder)), tamper


def _cut_off(folder: Path) -> None:
    lines = (folder / FILE).read_bytes().splitlines(keepends=True)
    os.truncate(folder / FILE, len(b"".join(lines[:3])))


def _moved_away(folder: Path) -> None:
    (folder / FILE).rename(folder / "audit.jsonl.1")


def _written_anew(folder: Path) -> None:
    other = folder / "other"
    other.mkdir()
    write(other, *"vwxyz")
    (other / FILE).rename(folder / FILE)
    other.rmdir()


def test_agent_cannot_hide_its_actions_by_declaring_them_secret(tmp_path: Path) -> None:
    held = register_secrets({"password": ["worker.delete_file", "decided", "sess_1_abc", "caller"]})
    entry = json.loads(
        b"{%b}" % entry_text({"event": "decided", "action": "worker.delete_file", "caller": "caller", "sessions": ["sess_1_abc"]})
    )
    assert entry == {"event": "decided", "action": "worker.delete_file", "caller": "caller", "sessions": ["sess_1_abc"]}
    said = json.loads(b"{%b}" % entry_text({"action": "worker.delete_file", "on_the_way": True, "by": "caller"}))
    assert said == {"action": "[redacted]", "on_the_way": True, "by": "[redacted]"}
    assert held is not None
