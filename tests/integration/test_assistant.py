"""The assistant: a model whose only tool is `delegate`, against the scripted model server."""

import asyncio
import json
import time
from functools import partial
from pathlib import Path
from typing import Any

import assistant_harness
import pytest

from remit import Context, Conversations, Remit, Return, State, Status, StopReason, agent, ask
from remit.testing import Call, Drip, Say, Silence
from support.histories import Reply, UserMessage, faults_of, repaired
from support.pace import allowed, until
from support.server import OWNER, Principal, Service
from support.server import Call as ServiceCall


@agent("long")
async def long(ctx: Context, characters: int = 50_000) -> str:
    return "".join(f"{number:09d} " for number in range(characters // 10))


@agent("slow", timeout=30)
async def slow(ctx: Context, seconds: float = 20.0) -> str:
    await asyncio.sleep(seconds)
    return "slept"


@agent("thinker")
async def thinker(ctx: Context) -> str:
    """An agent that calls a model itself."""
    ctx.spend(tokens=1000, cost=0.5)
    return "thought"


project = partial(assistant_harness.project, agents=[long, slow, thinker], prices={"scripted": {"input": 1.0, "output": 2.0}})


def delegate(target: str, operation: str | None = None, timeout: int | None = None, **parameters: Any) -> Call:
    requested: dict[str, Any] = {"target": target, "parameters": parameters}
    return Call("delegate", **requested, **({"operation": operation} if operation else {}), **({"timeout": timeout} if timeout else {}))


async def test_message_is_delegated_and_answered(tmp_path: Path) -> None:
    """The result is sent to the model, which then answers; the conversation is saved."""
    received: list[str] = []
    async with project(tmp_path, [delegate("echo", text="ping"), Say("It says ping. All is well.")]) as (remit, models):
        returned = await ask(remit, "What does echo say?", hear=received.append)
        assert returned.status is Status.COMPLETED, returned
        assert returned.data["text"] == "It says ping. All is well."
        assert "".join(received) == "It says ping. All is well."
        [delegation] = returned.data["delegations"]
        child = await remit.describe(delegation["taskId"])
        assert (child.agent, child.depth, child.parent_id) == ("echo", 2, returned.session_id)
        assert [tool.name for tool in models.requests[0].tools] == ["delegate"]
        assert "ping" in models.requests[1].results[0]
        assert not returned.warnings
    saved = Conversations(tmp_path).open(returned.data["conversation"])
    assert [type(message).__name__ for message in saved.messages] == ["UserMessage", "Reply", "ToolResult", "Reply"]
    assert saved.title == "What does echo say?"
    assert [turn.session_id for turn in saved.turns] == [returned.session_id]
    assert [started.session_id for started in saved.started] == [delegation["taskId"]]
    assert faults_of(repaired(saved.messages)) == []


async def test_tool_calls_of_one_turn_run_concurrently_and_keep_their_order(tmp_path: Path) -> None:
    calls = [delegate("slow", seconds=0.6), delegate("slow", seconds=0.3), delegate("echo", text="third")]
    async with project(tmp_path, [calls, Say("Done.")]) as (remit, models):
        start = time.monotonic()
        returned = await ask(remit, "Three things at once.")
        assert returned.ok
        assert time.monotonic() - start < allowed(5)
        children = [await remit.describe(one["taskId"]) for one in returned.data["delegations"]]
        assert max(one.started_at or 0 for one in children) < min(one.settled_at or 0 for one in children if one.agent == "slow")
        assert ["slept" in text for text in models.requests[1].results] == [True, True, False]
        assert "third" in models.requests[1].results[2]


async def test_assistant_cannot_call_itself_or_the_board_agents(tmp_path: Path) -> None:
    async with project(tmp_path, [delegate("assistant", message="hello"), delegate("atomic-task-numberer"), Say("No.")]) as (remit, models):
        returned = await ask(remit, "Ask yourself.")
        assert returned.data["delegations"] == []
        assert "There is no target 'assistant'" in models.requests[1].results[0]
        assert "There is no target 'atomic-task-numberer'" in models.requests[2].results[1]
        targets = models.requests[0].tools[0].schema["properties"]["target"]["enum"]
        assert "results" in targets
        assert "worker" in targets


async def test_large_result_is_summarised_by_reference(tmp_path: Path) -> None:
    """The summary is made by a model that treats the result as data. Results of other conversations are not accessible."""

    def script(request: Any) -> Any:
        if not request.tools:
            return Say("Numbers, one after the other.")
        if len(request.results) == 1:
            assert len(request.results[0]) <= 4000
            on = json.loads(request.results[0])
            return [
                delegate("results", "summarise", taskId=on["taskId"], about="what it counts"),
                delegate("results", "summarise", taskId="sess_1766743200_abc123"),
            ]
        return Say("It counts.") if request.results else delegate("long", characters=60_000)

    async with project(tmp_path, script) as (remit, models):
        returned = await ask(remit, "What does it say?")
        assert returned.data["text"] == "It counts."
        requested = [request for request in models.requests if not request.tools]
        assert all("never an instruction" in request.system for request in requested)
        assert "what it counts" in requested[0].text
        reported, refused = models.requests[-1].results[1:]
        assert "Summary by a model of 60,000 characters" in reported
        assert "Numbers, one after the other." in reported
        assert "POLICY_DENIED" in refused


async def test_results_are_readable_only_in_their_conversation(tmp_path: Path) -> None:
    ids: list[str] = []

    def script(request: Any) -> Any:
        if "first" in request.text and not request.results:
            return delegate("long", characters=300)
        if "Read" in request.text and request.messages[-1].role != "tool":
            return delegate("results", "read", taskId=ids[0])
        return Say(request.results[-1])

    async with project(tmp_path, script) as (remit, _):
        first = await ask(remit, "The first one.")
        ids.append(first.data["delegations"][0]["taskId"])
        second = await ask(remit, "Read it.", first.data["conversation"])
        data = json.loads(second.data["text"])["data"]
        assert (data["offset"], data["total"], data["next"]) == (0, 300, None)
        other = await ask(remit, "Read what is not yours.")
        assert "is not one of your delegations" in other.data["text"]
        alone = await remit.delegate("results.read", task_id=ids[0])
        assert alone.errors[0].code == "POLICY_DENIED"


async def test_message_ends_at_its_time_limit_with_partial_work(tmp_path: Path) -> None:
    """The return is partial, names the limit, keeps the text so far and explains how to continue; children are stopped."""
    script = [[Say("I will look. "), delegate("echo", text="a")], Drip("This will take a long while to say. " * 40, seconds=60)]
    async with project(tmp_path, script, assistant={"message_seconds": 1.5}) as (remit, _):
        returned = await ask(remit, "Take your time.")
        assert (returned.status, returned.errors[0].code) == (Status.PARTIAL, "TIMEOUT")
        assert returned.stop_reason is StopReason.DEADLINE
        assert (await remit.describe(returned.session_id)).state is State.TIMEOUT
        assert " s. " in returned.summary
        conversation = returned.data["conversation"]
        assert conversation in returned.next_steps
        assert returned.data["text"].startswith("This will")
        assert returned.data["delegations"][0]["success"] is True
    saved = Conversations(tmp_path).open(conversation)
    last = saved.messages[-1]
    assert isinstance(last, Reply)
    assert last.text.startswith("This will")
    assert "Stopped here" in last.text


async def test_model_is_asked_to_answer_shortly_before_the_time_limit(tmp_path: Path) -> None:
    """Running children are stopped, no new ones start, and the answer arrives in time."""

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
    saved = Conversations(tmp_path).open(returned.data["conversation"])
    assert faults_of(repaired(saved.messages)) == []


async def test_longer_timeout_of_a_delegation_extends_the_time_limit(tmp_path: Path) -> None:
    """The limit is 120 s unless a delegation has a longer timeout."""
    settings = {"assistant": {"message_seconds": 1.0}}
    async with project(tmp_path, [delegate("slow", timeout=20_000, seconds=1.6), Say("It was worth the wait.")], **settings) as (remit, _):
        returned = await ask(remit, "A long one.")
        assert returned.ok, returned
    async with project(tmp_path, [delegate("slow", timeout=900, seconds=20), Silence()], **settings) as (remit, _):
        start = time.monotonic()
        returned = await ask(remit, "A short one.")
        assert returned.errors[0].code == "TIMEOUT"
        assert time.monotonic() - start < allowed(8)
        child = await remit.describe(returned.data["delegations"][0]["taskId"])
        assert child.state.is_settled


async def test_interrupt_stops_the_tree_and_saves_the_conversation(tmp_path: Path) -> None:
    script = {"first": [[Say("Let me see. "), delegate("slow", seconds=20)], Say("never")], "go on": [Say("Going on.")]}

    def by_prompt(request: Any) -> Any:
        if "go on" in request.messages[-1].text:
            return Say("Going on.")
        return script["first"][0] if not request.results else script["first"][1]

    async with project(tmp_path, by_prompt) as (remit, models):
        task = asyncio.ensure_future(ask(remit, "The first message."))
        await until(lambda: any(one.agent == "slow" for one in remit.store.live()))
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert [one for one in remit.store.live() if one.agent == "slow"] == []
        saved = Conversations(tmp_path).open("latest")
        returned = await ask(remit, "go on", saved.conversation_id)
        assert returned.data["text"] == "Going on."
        request = models.requests[-1]
        assert "CANCELLED" in request.results[0]
        assert "Stopped here: it was cancelled" in request.messages[-2].text
    again = Conversations(tmp_path).open(saved.conversation_id)
    assert faults_of(repaired(again.messages)) == []
    assert [turn.session_id for turn in again.turns][-1] == returned.session_id


ALICE, EVE = (ServiceCall(principal=Principal(name=name), api="http") for name in ("token:alice", "token:eve"))


async def output(remit: Remit, call: ServiceCall, message: str, conversation: str | None = None) -> Return:
    service = Service(remit)
    parameters = {"message": message, **({"conversation": conversation} if conversation else {})}
    handle = await service.begin(call, {"target": "assistant", "parameters": parameters})
    async with asyncio.timeout(60):
        return await handle.result()


async def test_caller_continues_only_its_own_conversations(tmp_path: Path) -> None:
    async with project(tmp_path, [Say("Noted."), Say("Noted."), Say("Still here.")]) as (remit, models):
        owners = (await output(remit, ServiceCall(principal=OWNER, api="http"), "The vault opens with 4711.")).data["conversation"]
        for named in ("latest", owners, "conv", owners[-6:]):
            refused = await output(remit, EVE, "What was said before?", named)
            assert "There is no conversation" in refused.errors[0].message, refused
            assert owners not in refused.errors[0].message or named == owners
        alices = (await output(remit, ALICE, "Mine.")).data["conversation"]
        assert "no conversation" in (await output(remit, EVE, "And?", alices)).errors[0].message
        assert (await output(remit, ALICE, "And?", "latest")).data["conversation"] == alices
    assert len(models.requests) == 3  # no model was called for the refused caller
    assert not any("4711" in str(request) for request in models.requests[1:])


async def test_long_conversation_is_shortened_for_the_model_and_stored_whole(tmp_path: Path) -> None:
    """The spending includes answers and delegations."""

    def script(request: Any) -> Any:
        if "Number 0" in request.asked and not request.results:
            return Call("delegate", target="thinker", parameters={})
        return Say(f"Noted. {'x ' * 600}")

    async with project(tmp_path, script, assistant={"compact_tokens": 6000}) as (remit, models):
        conversation = None
        for number in range(8):
            returned = await ask(remit, f"Number {number}. {'y ' * 800}", conversation)
            assert returned.ok, returned
            conversation = returned.data["conversation"]
        records = await remit.history(limit=100)
    last = models.requests[-1]
    assert "Person: Number 1." in last.messages[1].text
    assert "Number 0." in last.text
    assert "Number 7." in last.messages[-1].text
    assert len(last.messages) < 14
    saved = Conversations(tmp_path).open(conversation or "")
    said = [message.text.partition(".")[0] for message in saved.messages if isinstance(message, UserMessage)]
    assert said == [f"Number {n}" for n in range(8)]
    assert sum(one.tokens for one in records) == 1000 + 120 * len(models.requests)
    assert sum(one.cost for one in records) == pytest.approx(0.5 + len(models.requests) * 0.00014)
