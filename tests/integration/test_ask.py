"""`remit ask`: streamed text on stdout, the exit codes of `remit delegate`, one object with --json."""

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from chat_harness import echoing_project, last_user_message, scripted_project

from remit import Misused
from remit.testing import Call, Fail, ModelRequest, Say
from remit.testing import ModelTurn as Turn
from support import cli

ask = cli.typed("ask")
Captured = pytest.CaptureFixture[str]


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Path]:
    with echoing_project(tmp_path) as folder:
        yield folder


def test_stdout_contains_only_the_answer(project: Path, capsys: Captured) -> None:
    assert ask(project, message=["look", "\x1b[2Jaround"]) == 0
    output = capsys.readouterr()
    assert output.out == "You said **look �[2Jaround**.\n\nI have looked:\n\n- one\n- two\n"


def test_json_is_one_object_with_the_delegations(project: Path, capsys: Captured) -> None:
    assert ask(project, as_json=True, message=["look"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["text"] == "You said **look**.\n\nI have looked:\n\n- one\n- two"
    assert (answer["status"], answer["conversation"][:5]) == ("completed", "conv_")
    assert {one["agent"]: one["status"] for one in answer["delegations"]} == {"nap": "completed", "worker.list_files": "completed"}
    assert (answer["tokens"], answer["cost"]) == (240, pytest.approx(0.00028))


def test_failure_is_printed_on_stderr_with_the_exit_code_of_delegate(project: Path, capsys: Captured) -> None:
    assert ask(project, message=["fail"]) == 1
    output = capsys.readouterr()
    assert output.out == ""
    assert "400" in output.err
    assert ask(project, message=["wait"], timeout="0.5") == 3
    assert "remit ask --conversation conv_" in capsys.readouterr().err


def test_missing_model_is_blocked_with_the_settings_to_write(tmp_path: Path, capsys: Captured) -> None:
    assert ask(tmp_path, message=["hello"]) == 4
    output = capsys.readouterr()
    assert output.out == ""
    assert 'model = "' in output.err
    assert "Traceback" not in output.err
    assert not (tmp_path / ".remit" / "conversations").exists(), "no conversation is created"


def test_invalid_arguments_run_nothing(tmp_path: Path) -> None:
    for passed in ({"message": ["x"], "latest": True}, {"message": ["x"], "conversation": "nope"}, {"message": ["  "]}):
        with pytest.raises(Misused):
            ask(tmp_path, **passed)  # type: ignore[arg-type]
    with pytest.raises(Misused, match="exclude one another"):
        ask(tmp_path, message=["x"], latest=True, conversation="a")
    assert list(tmp_path.iterdir()) == []


def test_ctrl_c_stops_the_tree_and_prints_how_to_continue(project: Path) -> None:
    command = [sys.executable, "-m", "remit.cli.main", "ask", "-"]
    process = subprocess.Popen(command, cwd=project, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    process.stdin.write("please wait\n")
    process.stdin.close()
    process.stdin = None
    assert process.stdout.read(8) == "You said", "the text is streamed before the answer is complete"
    assert process.stderr is not None
    next(line for line in process.stderr if "asleep" in line)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert out.endswith("\n")
    assert ", with nap " in err
    assert "remit ask --conversation conv_" in err
    assert "Traceback" not in err


def _script(request: ModelRequest) -> Turn:
    output = last_user_message(request)
    if "fail" in output:
        return Fail(401)
    if request.messages[-1].role == "tool":
        return Say(f"It says: {'only this' in request.messages[-1].text}.")
    if "read" in output:
        return Call("delegate", target="worker", operation="read_file", parameters={"path": "notes.txt"})
    return Say(f"{sum(message.role == 'user' for message in request.messages)} messages. <b>\x9b31m</b>")


def test_conversation_is_continued_and_listed(tmp_path: Path, capsys: Captured) -> None:
    (tmp_path / "notes.txt").write_text("only this\n")
    with scripted_project(tmp_path, _script):
        assert ask(tmp_path, message=["read", "notes.txt"]) == 0
        assert capsys.readouterr().out == "It says: True.\n"
        assert ask(tmp_path, as_json=True, message=["and", "now"], latest=True) == 0
        answer = json.loads(capsys.readouterr().out)
        assert answer["text"] == "2 messages. <b>\x9b31m</b>"
        assert (answer["tokens"], answer["cost"]) == (120, pytest.approx(0.00014))
        assert ask(tmp_path, message=["fail"], conversation=answer["conversation"]) in (1, 4)
        assert "Traceback" not in capsys.readouterr().err
        assert ask(tmp_path, message=["x"], model="nobody") == 4
        assert "nobody" in capsys.readouterr().err
    listed = cli.run_json("conversations", cwd=tmp_path)["conversations"]
    assert [(one["id"], one["title"], one["messages"]) for one in listed] == [(answer["conversation"], "read notes.txt", 3)]
