"""The assistant (S5.8): a model whose only tool is `delegate`, against the scripted model server."""

import asyncio
import json
import time
from functools import partial
from pathlib import Path
from typing import Any

import assistant_stage
import pytest

from remit import agent
from remit.assistant.asking import ask
from remit.assistant.conversations import Conversations
from remit.core.result import Status, StopReason
from remit.core.states import State
from remit.flow.context import Context
from remit.models.messages import Reply, repaired
from remit.testing.models import Call, Drip, Fail, Say, Silence, Stray
from support.histories import faults_of
from support.pace import allowed


@agent("long")
async def long(ctx: Context, characters: int = 50_000) -> str:
    return "".join(f"{number:09d} " for number in range(characters // 10))


@agent("slow", timeout=30)
async def slow(ctx: Context, seconds: float = 20.0) -> str:
    await asyncio.sleep(seconds)
    return "slept"


project = partial(assistant_stage.project, agents=[long, slow])


def delegate(target: str, operation: str | None = None, timeout: int | None = None, **parameters: Any) -> Call:
    asked: dict[str, Any] = {"target": target, "parameters": parameters}
    return Call("delegate", **asked, **({"operation": operation} if operation else {}), **({"timeout": timeout} if timeout else {}))


async def test_a_message_is_delegated_and_then_answered(tmp_path: Path) -> None:
    """S5.8: the result goes back to the model, which then answers; the conversation is kept."""
    heard: list[str] = []
    async with project(tmp_path, [delegate("echo", text="ping"), Say("It says ping. All is well.")]) as (remit, models):
        returned = await ask(remit, "What does echo say?", hear=heard.append)
        assert returned.status is Status.COMPLETED, returned
        assert returned.data["text"] == "It says ping. All is well."
        assert "".join(heard) == "It says ping. All is well."
        [delegation] = returned.data["delegations"]
        child = await remit.describe(delegation["taskId"])
        assert (child.agent, child.depth, child.parent_id) == ("echo", 2, returned.session_id)
        assert [tool.name for tool in models.requests[0].tools] == ["delegate"]
        assert "ping" in models.requests[1].results[0]
        assert not returned.warnings
    kept = Conversations(tmp_path).open(returned.data["conversation"])
    assert [type(message).__name__ for message in kept.messages] == ["Said", "Reply", "Result", "Reply"]
    assert kept.title == "What does echo say?"
    assert [turn.session_id for turn in kept.turns] == [returned.session_id]
    assert [started.session_id for started in kept.started] == [delegation["taskId"]]
    assert faults_of(repaired(kept.messages)) == []


async def test_several_calls_of_one_turn_run_at_once_and_answer_in_their_order(tmp_path: Path) -> None:
    """S5.8."""
    calls = [delegate("slow", seconds=0.6), delegate("slow", seconds=0.3), delegate("echo", text="third")]
    async with project(tmp_path, [calls, Say("Done.")]) as (remit, models):
        began = time.monotonic()
        returned = await ask(remit, "Three things at once.")
        assert returned.ok
        assert time.monotonic() - began < allowed(5)
        children = [await remit.describe(one["taskId"]) for one in returned.data["delegations"]]
        assert max(one.started_at or 0 for one in children) < min(one.settled_at or 0 for one in children if one.agent == "slow")
        assert ["slept" in text for text in models.requests[1].results] == [True, True, False]
        assert "third" in models.requests[1].results[2]


async def test_any_other_tool_is_refused_and_the_talk_goes_on(tmp_path: Path) -> None:
    """S5.8: its only tool is `delegate`."""

    def script(request: Any) -> Any:
        return Say(f"I was told: {request.results[0]}") if request.results else Stray("Bash", command="ls")

    async with project(tmp_path, script) as (remit, _):
        returned = await ask(remit, "Run ls.")
        assert "Your only tool is delegate" in returned.data["text"]
        assert returned.data["delegations"] == []


async def test_it_can_reach_neither_itself_nor_the_bookkeeping_of_the_board(tmp_path: Path) -> None:
    async with project(tmp_path, [delegate("assistant", message="hello"), delegate("atomic-task-numberer"), Say("No.")]) as (remit, models):
        returned = await ask(remit, "Ask yourself.")
        assert returned.data["delegations"] == []
        assert "There is no target 'assistant'" in models.requests[1].results[0]
        assert "There is no target 'atomic-task-numberer'" in models.requests[2].results[1]
        targets = models.requests[0].tools[0].schema["properties"]["target"]["enum"]
        assert "results" in targets
        assert "worker" in targets


async def test_a_large_result_is_summarised_by_reference(tmp_path: Path) -> None:
    """S7, by a model that sees it as material; the assistant sees the summary alone. Nobody else's can be had so."""

    def script(request: Any) -> Any:
        if not request.tools:
            return Say("Numbers, one after the other.")
        if len(request.results) == 1:
            on = json.loads(request.results[0])
            return [
                delegate("results", "summarise", taskId=on["taskId"], about="what it counts"),
                delegate("results", "summarise", taskId="sess_1766743200_abc123"),
            ]
        return Say("It counts.") if request.results else delegate("long", characters=60_000)

    async with project(tmp_path, script) as (remit, models):
        returned = await ask(remit, "What does it say?")
        assert returned.data["text"] == "It counts."
        asked = [request for request in models.requests if not request.tools]
        assert len(asked) > 1, "part by part"
        assert all("never an instruction" in request.system for request in asked)
        assert "what it counts" in asked[0].text
        told, refused = models.requests[-1].results[1:]
        assert "Summary by a model of 60,000 characters" in told
        assert "Numbers, one after the other." in told
        assert "POLICY_DENIED" in refused


async def test_results_are_read_in_later_messages_of_a_conversation_and_by_nobody_else(tmp_path: Path) -> None:
    ids: list[str] = []

    def script(request: Any) -> Any:
        if "first" in request.text and not request.results:
            return delegate("long", characters=300)
        if "Read" in request.text and not _last_is_result(request):
            return delegate("results", "read", taskId=ids[0])
        return Say(request.results[-1])

    async with project(tmp_path, script) as (remit, _):
        first = await ask(remit, "The first one.")
        ids.append(first.data["delegations"][0]["taskId"])
        second = await ask(remit, "Read it.", first.data["conversation"])
        assert "characters 0 to 300 of 300; this is the end" in second.data["text"]
        other = await ask(remit, "Read what is not yours.")
        assert "is no delegation of yours" in other.data["text"]
        alone = await remit.delegate("results.read", task_id=ids[0])
        assert alone.errors[0].code == "POLICY_DENIED"


def _last_is_result(request: Any) -> bool:
    return bool(request.messages) and request.messages[-1].role == "tool"


async def test_a_message_ends_at_its_limit_with_what_was_done(tmp_path: Path) -> None:
    """S5.8, S2.6: partial, the seconds named, children stopped, the reply so far kept, and the words how to go on."""
    script = [[Say("I will look. "), delegate("echo", text="a")], Drip("This will take a long while to say. " * 40, seconds=60)]
    async with project(tmp_path, script, assistant={"message_seconds": 1.5}) as (remit, _):
        returned = await ask(remit, "Take your time.")
        assert (returned.status, returned.errors[0].code) == (Status.PARTIAL, "TIMEOUT")
        assert returned.stop_reason is StopReason.DEADLINE
        assert (await remit.describe(returned.session_id)).state is State.TIMEOUT
        assert " s:" in returned.summary
        conversation = returned.data["conversation"]
        assert conversation in returned.next_steps
        assert returned.data["text"].startswith("This will")
        assert returned.data["delegations"][0]["success"] is True
    kept = Conversations(tmp_path).open(conversation)
    last = kept.messages[-1]
    assert isinstance(last, Reply)
    assert last.text.startswith("This will")
    assert "Stopped here" in last.text


async def test_shortly_before_its_limit_the_model_is_told_to_answer_with_what_it_has(tmp_path: Path) -> None:
    """S5.8, S2.4: what runs below is stopped, nothing new is begun, and the answer still comes in time."""

    def script(request: Any) -> Any:
        if "answer now" in request.messages[-1].text:
            return Say("I have not heard from it yet.")
        return delegate("slow", timeout=6000, seconds=20)

    async with project(tmp_path, script, assistant={"message_seconds": 6.0}) as (remit, models):
        returned = await ask(remit, "Wait for it.")
        assert returned.data["text"] == "I have not heard from it yet."
        assert returned.stop_reason is StopReason.FINISHED
        assert returned.data["delegations"][0]["taskState"] == "CANCELLED"
        assert "Time is nearly up" in models.requests[-1].messages[-1].text
        assert models.requests[-1].tools == ()
    kept = Conversations(tmp_path).open(returned.data["conversation"])
    assert faults_of(repaired(kept.messages)) == []


async def test_a_delegation_that_was_given_more_extends_the_limit_and_a_shorter_one_does_not(tmp_path: Path) -> None:
    """S5.8: 120 s unless a delegation inside it was given more."""
    settings = {"assistant": {"message_seconds": 1.0}}
    async with project(tmp_path, [delegate("slow", timeout=20_000, seconds=1.6), Say("It was worth the wait.")], **settings) as (remit, _):
        returned = await ask(remit, "A long one.")
        assert returned.ok, returned
    async with project(tmp_path, [delegate("slow", timeout=900, seconds=20), Silence()], **settings) as (remit, _):
        began = time.monotonic()
        returned = await ask(remit, "A short one.")
        assert returned.errors[0].code == "TIMEOUT"
        assert time.monotonic() - began < allowed(8)
        child = await remit.describe(returned.data["delegations"][0]["taskId"])
        assert child.state.is_settled


async def test_an_interrupt_stops_the_tree_and_keeps_the_conversation(tmp_path: Path) -> None:
    script = {"first": [[Say("Let me see. "), delegate("slow", seconds=20)], Say("never")], "go on": [Say("Going on.")]}

    def by_prompt(request: Any) -> Any:
        if "go on" in request.messages[-1].text:
            return Say("Going on.")
        return script["first"][0] if not request.results else script["first"][1]

    async with project(tmp_path, by_prompt) as (remit, models):
        task = asyncio.ensure_future(ask(remit, "The first message."))
        await _until(lambda: any(one.agent == "slow" for one in remit.store.live()))
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert [one for one in remit.store.live() if one.agent == "slow"] == []
        kept = Conversations(tmp_path).latest()
        assert kept is not None
        returned = await ask(remit, "go on", kept.conversation_id)
        assert returned.data["text"] == "Going on."
        shown = models.requests[-1]
        assert "CANCELLED" in shown.results[0]
        assert "Stopped here: it was cancelled" in shown.messages[-2].text
    again = Conversations(tmp_path).open(kept.conversation_id)
    assert faults_of(repaired(again.messages)) == []
    assert [turn.session_id for turn in again.turns][-1] == returned.session_id


async def _until(holds: Any, seconds: float = 20.0) -> None:
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end
        await asyncio.sleep(0.02)


async def test_a_conversation_is_answered_by_one_at_a_time(tmp_path: Path) -> None:
    async with project(tmp_path, [Say("Hello."), Drip("Slowly. " * 20, seconds=2)]) as (remit, models):
        first = await ask(remit, "Hello")
        conversation = first.data["conversation"]
        task = asyncio.ensure_future(ask(remit, "Slowly please.", conversation))
        await models.wait_asked(2)
        second = await ask(remit, "And me?", conversation)
        assert "is open in this process" in second.errors[0].message
        assert len(models.requests) == 2
        assert (await task).ok
    assert len(Conversations(tmp_path).open(conversation).turns) == 2


async def test_a_model_that_fails_is_told_with_the_conversation_in_which_to_go_on(tmp_path: Path) -> None:
    async with project(tmp_path, lambda request: Fail(401) if len(request.messages) < 3 else Say("Back again.")) as (remit, _):
        returned = await ask(remit, "Hello?")
        assert returned.status is not Status.COMPLETED
        assert returned.errors[0].code == "AGENT_UNAVAILABLE", returned
        conversation = returned.data["conversation"]
        assert conversation in returned.errors[0].recommendation


async def test_a_giant_message_is_refused_before_anything_is_asked(tmp_path: Path) -> None:
    async with project(tmp_path, [Say("No.")], assistant={"compact_tokens": 2000}) as (remit, models):
        returned = await ask(remit, "word " * 40_000)
        assert "too long" in returned.errors[0].message
        assert "file" in returned.errors[0].recommendation
        assert models.requests == []
    assert Conversations(tmp_path).list() == []


async def test_what_the_project_says_to_its_assistant_reaches_it(tmp_path: Path) -> None:
    (tmp_path / ".remit").mkdir()
    (tmp_path / ".remit" / "assistant.md").write_text("Always answer in verse.")
    async with project(tmp_path, [Say("Roses are red.")]) as (remit, models):
        await ask(remit, "Hello")
        assert "Always answer in verse." in models.requests[0].system
        assert "only tool is `delegate`" in models.requests[0].system
