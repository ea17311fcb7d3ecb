"""Claims: one live process works on a task at a time, for a limited time."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from remit import Board, Clock, Refused, Unavailable
from remit.board.claims import claim, holder_of, holders

HOLDING = """
import os, sys, time
from pathlib import Path
from remit.board.board import Board
from remit.board.claims import claim

with claim(Board(Path(sys.argv[1])), 12, "research", seconds=600) as held:
    held.name_session("sess_1")
    if "fork" in sys.argv:
        if os.fork() == 0:
            time.sleep(60)
            os._exit(0)
    print(os.getpid(), flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def board(tmp_path: Path) -> Board:
    return Board(tmp_path)


def start_holder(board: Board, *more: str) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDING, str(board.root), *more],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline().strip() == str(process.pid)
    return process


def kill_group(process: subprocess.Popen[str]) -> None:
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def test_claim_is_visible_while_held_and_leaves_no_file(board: Board) -> None:
    assert (holder_of(board, 12), holders(board)) == (None, {})
    with claim(board, 12, "research", seconds=60) as held:
        held.name_session("sess_1")
        found = holder_of(board, 12)
        assert found == held.holder
        assert found is not None
        assert (found.command, found.pid, found.session_id) == ("research", os.getpid(), "sess_1")
        assert holders(board) == {12: found}
    assert holders(board) == {}
    assert list((board.folder / "tasks").iterdir()) == []


def test_refused_claim_names_the_holder_and_the_way_out(board: Board) -> None:
    process = start_holder(board)
    try:
        with pytest.raises(Refused) as refused, claim(board, 12, "plan", seconds=60):
            pass
        assert f"Task 12 is being worked on by `remit research` (process {process.pid}) since " in refused.value.message
        assert "remit cancel sess_1" in refused.value.advice
        with claim(board, 13, "plan", seconds=60):
            assert holders(board).keys() == {12, 13}
    finally:
        kill_group(process)
    assert holders(board) == {}
    with claim(board, 12, "plan", seconds=60) as held:
        assert holders(board) == {12: held.holder}


def test_child_that_inherits_the_lock_of_a_dead_holder_holds_no_claim(board: Board) -> None:
    process = start_holder(board, "fork")
    try:
        process.kill()
        process.wait()
        assert holder_of(board, 12) is None
        with claim(board, 12, "plan", seconds=60):
            with pytest.raises(Refused), claim(board, 12, "plan", seconds=60):
                pass
            assert holders(board)[12].command == "plan"
    finally:
        os.killpg(process.pid, signal.SIGKILL)


def test_claim_expires_even_if_its_holder_lives(board: Board) -> None:
    now = time.time()
    late = Board(board.root, clock=Clock(wall=lambda: now + 120))
    with claim(board, 12, "research", seconds=60) as hung:
        assert holder_of(late, 12) is None
        with claim(late, 12, "plan", seconds=60) as taken:
            assert hung.is_lost
            assert not taken.is_lost
            hung.name_session("sess_late")
            assert holders(late)[12].session_id == "", "the former holder does not overwrite the new claim"
        assert holders(late) == {}
    first = claim(board, 12, "research", seconds=60)
    first.__enter__()
    with claim(late, 12, "plan", seconds=600) as taken:
        first.__exit__(None, None, None)
        assert holders(board) == {12: taken.holder}, "the former holder does not release the new claim"


@pytest.mark.parametrize(
    "note", [b"", b"{", b"[]", b'{"number":12,"command":"x","pid":"y","since":0,"expires_at":"soon"}', b'{"since":1e300}']
)
def test_unreadable_claim_file_of_a_live_holder_still_refuses_others(board: Board, note: bytes) -> None:
    with claim(board, 12, "research", seconds=60) as held:
        (board.folder / "tasks/012.lock").write_bytes(note)
        with pytest.raises(Refused, match="Task 12 is being worked on by another process"), claim(board, 12, "plan", seconds=60):
            pass
        assert holders(board) == {}
        assert not held.is_lost
    with claim(board, 12, "plan", seconds=60):
        pass


@pytest.mark.parametrize("name", ["tasks", "tasks/012.lock"])
def test_claim_is_never_written_through_a_link(board: Board, name: str) -> None:
    theirs = board.root / "theirs"
    theirs.mkdir()
    (theirs / "012.lock").write_text("theirs")
    (board.folder / name).parent.mkdir(parents=True)
    (board.folder / name).symlink_to(theirs if name == "tasks" else theirs / "012.lock")
    with pytest.raises(Unavailable), claim(board, 12, "plan", seconds=60):
        pass
    assert (theirs / "012.lock").read_text() == "theirs"
