"""`remit ask`: words on stdout as they come, exit codes as `remit delegate` has them, one object with --json."""

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from chat_stage_set import echoing_project, last_said, scripted_project

from remit.cli.ask import ask
from remit.cli.conversations import conversations
from remit.cli.exits import Exit
from remit.core.errors import Misused
from remit.testing.models import Call, Fail, ModelRequest, Say, Turn

Captured = pytest.CaptureFixture[str]


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Path]:
    with echoing_project(tmp_path) as folder:
        yield folder


def test_the_words_are_the_whole_of_stdout(project: Path, capsys: Captured) -> None:
    assert ask(message=["look", "\x1b[2Jaround"], root=project) is Exit.OK
    shown = capsys.readouterr()
    assert shown.out == "You said **look �[2Jaround**.\n\nI have looked:\n\n- one\n- two\n"
    assert ask(message=["hello"], root=project, quiet=True) is Exit.OK
    assert capsys.readouterr().err == ""


def test_json_is_one_object_with_what_was_handed_on(project: Path, capsys: Captured) -> None:
    assert ask(message=["look"], root=project, as_json=True) is Exit.OK
    answer = json.loads(capsys.readouterr().out)
    assert answer["text"] == "You said **look**.\n\nI have looked:\n\n- one\n- two"
    assert (answer["status"], answer["conversation"][:5]) == ("completed", "conv_")
    assert {one["agent"]: one["status"] for one in answer["delegations"]} == {"nap": "completed", "worker.list_files": "completed"}
    assert (answer["tokens"], answer["cost"]) == (240, pytest.approx(0.00028))


def test_what_goes_wrong_is_told_on_stderr_with_the_exit_code_of_delegate(project: Path, capsys: Captured) -> None:
    assert ask(message=["fail"], root=project) is Exit.FAILED
    shown = capsys.readouterr()
    assert shown.out == ""
    assert "400" in shown.err
    assert ask(message=["wait"], root=project, timeout="0.5") is Exit.PARTIAL
    assert "remit ask --conversation conv_" in capsys.readouterr().err


def test_without_a_model_it_is_blocked_with_the_lines_to_write(tmp_path: Path, capsys: Captured) -> None:
    assert ask(message=["hello"], root=tmp_path) is Exit.BLOCKED
    shown = capsys.readouterr()
    assert shown.out == ""
    assert 'model = "' in shown.err
    assert "Traceback" not in shown.err
    assert not (tmp_path / ".remit" / "conversations").exists(), "nothing is begun that cannot be gone on with"


def test_what_is_wrongly_called_runs_nothing(tmp_path: Path) -> None:
    for given in ({"message": ["x"], "latest": True}, {"message": ["x"], "conversation": "nope"}, {"message": ["  "]}):
        with pytest.raises(Misused):
            ask(root=tmp_path, **given)  # type: ignore[arg-type]
    with pytest.raises(Misused, match="exclude one another"):
        ask(message=["x"], latest=True, conversation="a", root=tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_ctrl_c_stops_the_tree_keeps_the_conversation_and_says_how_to_go_on(project: Path) -> None:
    command = [sys.executable, "-m", "remit.cli.main", "ask", "-"]
    asked = subprocess.Popen(command, cwd=project, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    asked.stdin.write("please wait\n")
    asked.stdin.close()
    asked.stdin = None
    assert asked.stdout.read(8) == "You said", "it is said before it has ended"
    assert asked.stderr is not None
    next(line for line in asked.stderr if "asleep" in line)
    asked.send_signal(signal.SIGINT)
    out, err = asked.communicate(timeout=30)
    assert asked.returncode == 130
    assert out.endswith("\n")
    assert ", with nap " in err
    assert "remit ask --conversation conv_" in err
    assert "Traceback" not in err


def _script(request: ModelRequest) -> Turn:
    said = last_said(request)
    if "fail" in said:
        return Fail(401)
    if request.messages[-1].role == "tool":
        return Say(f"It says: {'only this' in request.messages[-1].text}.")
    if "read" in said:
        return Call("delegate", target="worker", operation="read_file", parameters={"path": "notes.txt"})
    return Say(f"{sum(message.role == 'user' for message in request.messages)} messages. <b>\x9b31m</b>")


def test_with_a_model_a_conversation_goes_on_is_listed_renamed_exported_and_deleted(
    tmp_path: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "notes.txt").write_text("only this\n")
    with scripted_project(tmp_path, _script):
        assert ask(message=["read", "notes.txt"], root=tmp_path) is Exit.OK
        assert capsys.readouterr().out == "It says: True.\n"
        assert ask(message=["and", "now"], root=tmp_path, latest=True, as_json=True) is Exit.OK
        answer = json.loads(capsys.readouterr().out)
        assert answer["text"] == "2 messages. <b>\x9b31m</b>"
        assert (answer["tokens"], answer["cost"]) == (120, pytest.approx(0.00014))
        assert ask(message=["fail"], root=tmp_path, conversation=answer["conversation"]) in (Exit.FAILED, Exit.BLOCKED)
        assert "Traceback" not in capsys.readouterr().err
        assert ask(message=["x"], root=tmp_path, model="nobody") is Exit.BLOCKED
        assert "nobody" in capsys.readouterr().err
    _kept(tmp_path, answer["conversation"], capsys)


def _kept(root: Path, conversation: str, capsys: Captured) -> None:
    capsys.readouterr()
    assert conversations(words=["rename", "latest", "Notes", "and", "more"], root=root) is Exit.OK
    assert capsys.readouterr().out == f"{conversation}  Notes and more\n"
    conversations(root=root, as_json=True)
    listed = json.loads(capsys.readouterr().out)["conversations"]
    assert [(one["id"], one["title"], one["messages"]) for one in listed] == [(conversation, "Notes and more", 3)]
    conversations(words=["show", conversation[-6:]], root=root)
    shown = capsys.readouterr().out
    assert shown.startswith("# Notes and more")
    assert "\x9b" not in shown
    conversations(words=["export", conversation], root=root, as_json=True)
    exported = json.loads(capsys.readouterr().out)
    assert [message["role"] for message in exported["messages"][:4]] == ["user", "assistant", "result", "assistant"]
    with pytest.raises(Misused):
        conversations(words=["delete", conversation, "zzzzzz"], root=root)
    assert conversations(words=["delete", conversation], root=root) is Exit.OK
    capsys.readouterr()
    conversations(root=root)
    assert "no conversation yet" in capsys.readouterr().out
    for words in (["destroy"], ["show"], ["rename", "x"], ["list", "x"]):
        with pytest.raises(Misused):
            conversations(words=words, root=root)
