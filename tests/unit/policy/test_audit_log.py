"""The audit log: chained, shared by processes, whole after a crash, and telling when it was touched (item 7)."""

import json
import multiprocessing
import os
import time
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from remit.core.errors import Unavailable
from remit.core.redaction import register_secrets
from remit.policy.audit import FILE, AuditLog, check_log, entries, entry_text


def write(folder: Path, *names: str, full_bytes: int = 10**9) -> None:
    log = AuditLog(folder, full_bytes=full_bytes)
    for name in names:
        log.write([entry_text({"event": "decided", "sessions": [name]})])
    log.close()


def findings(folder: Path, head: str | None = None) -> list[str]:
    return [finding.what for finding in check_log(folder, head).findings]


def test_lines_are_numbered_and_chained_across_hands(tmp_path: Path) -> None:
    write(tmp_path, "a", "b")
    write(tmp_path, "c")
    checked = check_log(tmp_path)
    assert (checked.findings, checked.lines, checked.sessions) == ([], 3, {"a", "b", "c"})
    assert [entry["number"] for entry in entries(tmp_path)] == [1, 2, 3]
    assert (tmp_path / FILE).stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("kept", [1, 40, 100])
def test_a_line_that_a_crash_tore_is_kept_and_noted(tmp_path: Path, kept: int) -> None:
    write(tmp_path, "a", "b")
    data = (tmp_path / FILE).read_bytes()
    cut = data[: data.index(b"\n") + 1 + kept]
    (tmp_path / FILE).write_bytes(cut)
    write(tmp_path, "c")
    checked = check_log(tmp_path)
    assert (checked.findings, checked.torn) == ([], 1)
    assert (tmp_path / FILE).read_bytes().startswith(cut)
    assert [entry["event"] for entry in entries(tmp_path)] == ["decided", "recovered", "decided"]


def test_a_full_file_is_followed_by_another_and_the_chain_goes_on(tmp_path: Path) -> None:
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


def test_what_was_changed_inserted_or_removed_is_named(tmp_path: Path) -> None:
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


def test_a_log_that_was_cut_off_or_written_anew_shows_against_a_head_kept_elsewhere(tmp_path: Path) -> None:
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


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_any_change_of_any_byte_shows(data: st.DataObject) -> None:
    with TemporaryDirectory() as place:
        folder = Path(place)
        write(folder, "a", "b", "c")
        head = check_log(folder).head
        path = folder / FILE
        text = bytearray(path.read_bytes())
        at = data.draw(st.integers(0, len(text) - 2))  # the last newline is no part of any line
        byte = data.draw(st.integers(0, 255).filter(lambda value: value != text[at]))
        text[at] = byte
        path.write_bytes(bytes(text))
        assert check_log(folder, head).findings


def test_a_log_that_is_taken_away_is_begun_anew_and_that_shows(tmp_path: Path) -> None:
    log = AuditLog(tmp_path)
    log.write([entry_text({"event": "decided", "sessions": ["a"]})])
    (tmp_path / FILE).unlink()
    log._look_at = 0.0
    log.write([entry_text({"event": "decided", "sessions": ["b"]})])
    log.close()
    assert "begins with line number 2" in findings(tmp_path)[0]


def test_what_cannot_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / FILE).mkdir()
    with pytest.raises(Unavailable, match="cannot be written"):
        AuditLog(tmp_path).write([entry_text({"event": "decided"})])


def test_a_link_that_lies_in_wait_is_not_followed(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("mine")
    (tmp_path / FILE).symlink_to(victim)
    with pytest.raises(Unavailable):
        AuditLog(tmp_path).write([entry_text({"event": "decided"})])
    assert victim.read_text() == "mine"


def test_names_that_are_no_text_can_be_logged(tmp_path: Path) -> None:
    name = os.fsdecode(b"bad\xff")
    log = AuditLog(tmp_path)
    log.write([entry_text({"event": "decided", "facts": {"path": name}, "sessions": ["a"]})])
    log.close()
    assert findings(tmp_path) == []
    assert json.loads((tmp_path / FILE).read_text())["sessions"] == ["a"]


def _decided(log: AuditLog, *names: str) -> None:
    for name in names:
        log.write([entry_text({"event": "decided", "verdict": "deny", "sessions": [name]})])


def _busy_hand(folder: str, name: str) -> None:
    write(Path(folder), *(f"{name}{number}" for number in range(200)), full_bytes=5000)


def test_several_processes_keep_one_chain_over_many_files(tmp_path: Path) -> None:
    hands = [multiprocessing.get_context("fork").Process(target=_busy_hand, args=(str(tmp_path), name)) for name in "abcd"]
    for hand in hands:
        hand.start()
    for hand in hands:
        hand.join(30)
    assert [hand.exitcode for hand in hands] == [0] * 4
    checked = check_log(tmp_path)
    assert (checked.findings, len(checked.sessions)) == ([], 800)


def test_a_crash_between_the_last_line_of_a_full_file_and_its_new_name_is_made_good(tmp_path: Path) -> None:
    write(tmp_path, "a")
    log = AuditLog(tmp_path)
    log.write([entry_text({"event": "rolled"})])
    log.close()
    write(tmp_path, "b")
    assert findings(tmp_path) == []
    assert sorted(path.name for path in tmp_path.iterdir()) == ["audit-00001.jsonl", FILE]


def test_no_earlier_file_is_overwritten_when_one_was_removed(tmp_path: Path) -> None:
    write(tmp_path, *"abcdefgh", full_bytes=400)
    files = sorted(path for path in tmp_path.iterdir() if path.name != FILE)
    files[0].unlink()
    kept = {path: path.read_bytes() for path in files[1:]}
    write(tmp_path, *"ijklmn", full_bytes=400)
    assert {path: path.read_bytes() for path in files[1:]} == kept
    assert "the log begins with line number" in findings(tmp_path)[0]


def test_nothing_can_be_added_after_the_hash_of_a_line(tmp_path: Path) -> None:
    """Of two values under one name a reader takes the last."""
    log = AuditLog(tmp_path)
    _decided(log, "a", "b")
    log.close()
    path = tmp_path / FILE
    path.write_bytes(path.read_bytes().replace(b'"}\n', b'","verdict":"allow"}\n', 1))
    assert [entry["verdict"] for entry in entries(tmp_path)] == ["allow", "deny"]
    assert "was changed" in findings(tmp_path)[0]


def test_what_is_cut_off_moved_away_or_written_anew_while_it_is_open_shows(tmp_path: Path) -> None:
    """Whoever has it open knows how far the chain went: it goes on from there, and the gap is named."""
    for number, harm in enumerate((_cut_off, _moved_away, _written_anew)):
        folder = tmp_path / str(number)
        folder.mkdir()
        log = AuditLog(folder)
        _decided(log, *"abcde")
        harm(folder)
        time.sleep(0.25)  # it is looked once in a while whether the file has its name
        _decided(log, "f")
        log.close()
        assert any("removed" in what or "replaced" in what for what in findings(folder)), harm


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


def test_no_agent_can_hide_what_it_did_by_calling_it_a_secret(tmp_path: Path) -> None:
    held = register_secrets({"password": ["worker.delete_file", "decided", "sess_1_abc", "caller"]})
    entry = json.loads(
        b"{%b}" % entry_text({"event": "decided", "action": "worker.delete_file", "caller": "caller", "sessions": ["sess_1_abc"]})
    )
    assert entry == {"event": "decided", "action": "worker.delete_file", "caller": "caller", "sessions": ["sess_1_abc"]}
    said = json.loads(b"{%b}" % entry_text({"action": "worker.delete_file", "on_the_way": True, "by": "caller"}))
    assert said == {"action": "[redacted]", "on_the_way": True, "by": "[redacted]"}
    assert held is not None
