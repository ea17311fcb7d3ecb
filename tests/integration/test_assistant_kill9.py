"""The assistant survives kill -9: no message is lost and no call is repeated."""

import asyncio
import sys
from pathlib import Path
from typing import Any

from assistant_project import hang, note, settings_for

from remit import Conversations, Remit, Status, ask
from remit.testing import Call, Drip, Say, ScriptedModels
from support.histories import faults_of, repaired

PROJECT = Path(__file__).with_name("assistant_project.py")


def delegate(target: str, **parameters: Any) -> Call:
    return Call("delegate", target=target, parameters=parameters)


async def killed(root: Path, url: str, message: str, when: Any, meanwhile: Any = None) -> None:
    process = await asyncio.create_subprocess_exec(
        sys.executable, str(PROJECT), str(root), url, message, stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE
    )
    try:
        async with asyncio.timeout(30):
            while not when():
                assert process.returncode is None, (await process.stderr.read()).decode() if process.stderr else ""
                await asyncio.sleep(0.02)
            if meanwhile is not None:
                await meanwhile(process.pid)
    finally:
        process.kill()
        await process.wait()


async def test_calls_of_a_killed_message_are_replayed_from_the_record(tmp_path: Path) -> None:
    runs = tmp_path / "runs.txt"

    def script(request: Any) -> Any:
        if "go on" in request.text:
            return Say("I went on.")
        if not request.results:
            return [Say("Two things. "), delegate("note", text="a")]
        return [delegate("note", text="b"), delegate("hang")]

    async with ScriptedModels(script) as models:

        def has_begun() -> bool:
            return runs.exists() and "hang" in runs.read_text() and "note b" in runs.read_text()

        async def cannot_be_joined(pid: int) -> None:
            """A second process cannot write to a conversation that is in use."""
            saved = Conversations(tmp_path).open("latest")
            async with Remit.open(tmp_path, agents=[note, hang], settings=settings_for(models.openai_url)) as remit:
                returned = await ask(remit, "Me too.", saved.conversation_id)
            assert "is answering another message" in returned.errors[0].message

        await killed(tmp_path, models.openai_url, "Please note.", has_begun, cannot_be_joined)
        before = Conversations(tmp_path).open("latest")
        async with Remit.open(tmp_path, agents=[note, hang], settings=settings_for(models.openai_url)) as remit:
            returned = await ask(remit, "go on", before.conversation_id)
            assert returned.status is Status.COMPLETED, returned
        results = models.requests[-1].results
        assert "noted a" in results[0]
        assert "noted b" in results[1]
        assert "AGENT_CRASHED" in results[2]
    assert sorted(runs.read_text().split("\n")[:-1]) == ["hang", "note a", "note b"]
    after = Conversations(tmp_path).open(before.conversation_id)
    assert after.messages[: len(before.messages)] == before.messages
    assert faults_of(repaired(after.messages)) == []
    assert after.messages[0].text == "Please note."


async def test_call_killed_before_it_was_recorded_is_reported_as_unknown(tmp_path: Path) -> None:
    """The process dies after recording the delegation and before naming it in the conversation."""

    def script(request: Any) -> Any:
        if "go on" in request.text:
            return Say("I went on.")
        return delegate("note", text="a") if not request.results else Drip("Slow. " * 20, seconds=20)

    async with ScriptedModels(script) as models:
        await killed(tmp_path, models.openai_url, "Please note.", lambda: len(models.requests) == 2)
        saved = Conversations(tmp_path).open("latest")
        lines = saved.path.read_bytes().split(b"\n")
        call = next(number for number, line in enumerate(lines) if line.startswith(b'{"kind":"reply"'))
        saved.path.write_bytes(b"\n".join(lines[: call + 1]) + b'\n{"kind":"started","at"')
        async with Remit.open(tmp_path, agents=[note, hang], settings=settings_for(models.openai_url)) as remit:
            assert (await ask(remit, "go on", saved.conversation_id)).ok
        assert "Check whether it was carried out" in models.requests[-1].results[0]
    assert (tmp_path / "runs.txt").read_text() == "note a\n"
    assert "unreadable" in Conversations(tmp_path).open(saved.conversation_id).notices[0]
