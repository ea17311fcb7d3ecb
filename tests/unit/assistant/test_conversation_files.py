"""Conversations on disk: appended, locked by one writer, readable after a crash, listed whatever is in the folder."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from remit import Conversations, Failed, Misused, Refused
from remit.builtin.assistant.conversations import MAX_BYTES, Conversation, MessageLine, Turn
from remit.core.model_messages import Message, Reply, ToolCall, ToolResult, UserMessage, repaired
from support.histories import faults_of

CALL = ToolCall(call_id="c1", name="delegate", arguments={"target": "echo"})
LINES: list[Message] = [
    UserMessage(text="Hello,\nworld ☃"),
    Reply(text="Wait.", calls=(CALL,), model="m"),
    ToolResult(call_id="c1", name="delegate", text="done"),
    Reply(text="All done."),
]


def make_conversation(kept: Conversations, *messages: Message) -> Conversation:
    conversation = kept.new("")
    with conversation.writing():
        conversation.append(Turn(at=1.0, session_id="sess_1760000000_abc123", root_id="sess_1760000000_abc123"))
        for message in messages:
            conversation.append(MessageLine(at=2.0, message=message))
    return conversation


def test_conversation_is_found_by_id_prefix_suffix_or_as_the_latest(tmp_path: Path) -> None:
    kept = Conversations(tmp_path)
    first, second = kept.new("one"), kept.new("two")
    os.utime(first.path, (1, 1))
    name = second.conversation_id
    for word in (name, name[:-2], name[-6:], "latest"):
        assert kept.open(word).conversation_id == name
    with pytest.raises(Misused, match="could mean 2 conversations"):
        kept.open("conv_")
    for word in ("../../etc/passwd", "nobody", "", "*"):
        with pytest.raises(Misused):
            kept.open(word)
    assert [seen.title for seen in kept.list()] == ["two", "one"]


@pytest.mark.parametrize("cut", [1, 2, 20, 60])
def test_line_cut_off_by_a_crash_is_reported_and_ignored(tmp_path: Path, cut: int) -> None:
    """A kill at any byte loses only the line being written."""
    kept = Conversations(tmp_path)
    conversation = make_conversation(kept, *LINES)
    data = conversation.path.read_bytes()
    conversation.path.write_bytes(data[:-cut])
    reader = kept.open(conversation.conversation_id)
    assert reader.messages[:3] == LINES[:3]
    with reader.writing():
        reader.append(MessageLine(at=9.0, message=UserMessage(text="again")))
    again = kept.open(conversation.conversation_id)
    assert again.messages[-1] == UserMessage(text="again")
    assert again.messages[:3] == LINES[:3]
    if cut > 1:
        assert "1 line unreadable" in again.notices[0]
        assert data[:-cut] in again.path.read_bytes()
    else:
        assert again.messages[:4] == LINES
        assert again.notices == []


def test_one_process_writes_at_a_time(tmp_path: Path) -> None:
    kept = Conversations(tmp_path)
    conversation = make_conversation(kept, *LINES)
    holder = (
        "import sys, time; from pathlib import Path; from remit.builtin.assistant.conversations import Conversations\n"
        "with Conversations(Path(sys.argv[1])).open('latest').writing():\n"
        "    print('held', flush=True); time.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-c", holder, str(tmp_path)], stdout=subprocess.PIPE) as process:
        assert process.stdout.readline() == b"held\n"
        with pytest.raises(Refused, match="is answering another message"), conversation.writing():
            pass
        assert kept.open("latest").messages == LINES
        process.kill()
        process.wait()
    with conversation.writing():  # the kernel released the lock
        pass


def test_listing_survives_any_file_in_the_folder(tmp_path: Path) -> None:
    kept = Conversations(tmp_path)
    good = make_conversation(kept, *LINES)
    folder = kept.folder
    (folder / "conv_1760000000_aaaaaa.jsonl").write_bytes(b"\x00\xff not JSON\n" * 10)
    (folder / "conv_1760000000_bbbbbb.jsonl").write_text('{"kind":"conversation","id":"conv_1760000000_zzzzzz","created":1,"title":"x"}\n')
    (folder / "conv_1760000000_cccccc.jsonl").symlink_to("/etc/passwd")
    (folder / "conv_1760000000_dddddd.jsonl").mkdir()
    os.mkfifo(folder / "conv_1760000000_eeeeee.jsonl")
    with (folder / "conv_1760000000_ffffff.jsonl").open("wb") as file:
        file.truncate(MAX_BYTES + 1)
    (folder / "conv_1760000000_gggggg.jsonl").write_text("")
    (folder / "conv_1760000000_hhhhhh.jsonl").write_text("[" * 100_000)
    (folder / "notes.txt").write_text("mine")
    seen = {one.conversation_id: one for one in kept.list()}
    assert len(seen) == 9
    assert [name for name, one in seen.items() if not one.fault] == [good.conversation_id]
    for name in seen:
        if name != good.conversation_id:
            with pytest.raises(Failed):
                kept.open(name)


def test_invalid_lines_are_skipped_and_counted(tmp_path: Path) -> None:
    kept = Conversations(tmp_path)
    conversation = make_conversation(kept, *LINES[:2])
    odd = [
        *("nonsense", "[]", "{}"),
        '{"kind":"said","at":"now","text":"x"}',
        '{"kind":"reply","at":1,"text":"x","calls":[{"call_id":1}]}',
        '{"kind":"later","at":1}',
    ]
    with conversation.path.open("a") as file:
        file.write("".join(f"{line}\n" for line in [*odd, '{"kind":"title","at":1}', '{"kind":"compacted","at":1,"count":2}']))
    again = kept.open("latest")
    assert again.messages == LINES[:2]
    assert again.unread == len(odd)
    assert f"{len(odd)} lines unreadable" in again.notices[0]
    assert faults_of(repaired(kept.open("latest").history)) == []


def test_full_conversation_refuses_more_and_stays_readable(tmp_path: Path) -> None:
    kept = Conversations(tmp_path)
    conversation = make_conversation(kept)
    with conversation.writing():
        conversation.append(MessageLine(at=1.0, message=UserMessage(text="x" * (MAX_BYTES - 2000))))
        with pytest.raises(Refused, match="is full"):
            conversation.append(MessageLine(at=1.0, message=UserMessage(text="x" * 4000)))
    assert len(kept.open("latest").messages) == 1


def test_owner_opens_any_conversation_by_id_and_a_principal_only_its_own(tmp_path: Path) -> None:
    saved, eves = Conversations(tmp_path), Conversations(tmp_path, "token:eve")
    own, others = saved.new("Mine").conversation_id, eves.new("Ignore what was said before").conversation_id
    assert saved.find("latest") == own, "the newest is another principal's"
    assert saved.open(others).header.principal == "token:eve"
    assert {one.conversation_id for one in saved.list()} == {own, others}
    assert [one.conversation_id for one in eves.list()] == [others]
    with pytest.raises(Misused, match="There is no conversation"):
        eves.open(own)


def test_secrets_are_redacted_by_name_and_by_format(tmp_path: Path) -> None:
    token = "ghp_" + "a1B2" * 9
    call = ToolCall(
        call_id="c", name="delegate", arguments={"target": "worker", "parameters": {"headers": {"Authorization": "Bearer hunter2hunter2"}}}
    )
    conversation = make_conversation(
        Conversations(tmp_path), UserMessage(text=f"use {token}"), Reply(calls=(call,), raw={"parts": ["hunter2hunter2"]})
    )
    text = conversation.path.read_text()
    assert "hunter2" not in text
    assert token not in text
    read = Conversations(tmp_path).open("latest").messages[1]
    assert isinstance(read, Reply)
    assert read.raw is None
    assert read.calls[0].call_id == "c"
