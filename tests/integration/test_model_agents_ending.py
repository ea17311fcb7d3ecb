"""Model agents whose model is in trouble, that end, and whose data has a schema (items 2, 3 and 7; S2, S8)."""

import asyncio
import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from model_stage import COUNT, DONE, asked, settings_for, shown, stage

from remit import Remit, agent
from remit.agents.function import FunctionAgent
from remit.core.budget import Limits
from remit.core.result import Status, StopReason
from remit.testing.models import Call, Cut, Drip, Reply, Say, ScriptedModels, Silence, valid_return
from support.pace import allowed

# ---- trouble with the model


async def test_a_stream_that_breaks_off_is_named_or_goes_over_to_the_next_model(tmp_path: Path) -> None:
    async with ScriptedModels([Cut("Half an ans")]) as broken, ScriptedModels([DONE]) as sound:
        settings = settings_for(broken, {})
        settings["models"]["second"] = {**settings["models"]["scripted"], "url": sound.openai_url}
        async with Remit.open(tmp_path, settings=settings) as remit:
            alone = await asked(remit)
        async with Remit.open(tmp_path, settings={**settings, "model": ["scripted", "second"]}) as remit:
            result = await asked(remit)
            events = await remit.events(result.session_id)
    assert alone.status is Status.FAILED
    assert alone.errors[0].code == "AGENT_UNAVAILABLE"
    assert "scripted" in alone.errors[0].message
    assert result.ok
    assert any("scripted did not answer" in str(event.body) and "asked second" in str(event.body) for event in events)


async def test_no_model_is_blocked_with_the_line_to_write(tmp_path: Path) -> None:
    settings = {"agents": {"thinker": {"kind": "model"}}}
    async with Remit.open(tmp_path, settings=settings) as remit:
        result = await asked(remit)
    assert (result.status, result.errors[0].code) == (Status.BLOCKED, "TOOL_UNAVAILABLE")
    assert "model" in result.errors[0].recommendation


@pytest.mark.parametrize("turn", [Drip("A first part of it. " * 40, seconds=60), Silence()], ids=["drips", "is silent"])
async def test_a_model_that_does_not_end_is_ended_at_the_deadline_with_what_it_said(tmp_path: Path, turn: Drip | Silence) -> None:
    started = time.monotonic()
    async with stage(tmp_path, lambda _: turn, timeout=1.5) as (remit, _):
        result = await asked(remit)
    assert time.monotonic() - started < allowed(8)
    assert (result.status, result.errors[0].code) == (Status.PARTIAL, "TIMEOUT")
    assert isinstance(turn, Silence) or "A first part" in json.dumps(result.data)


# ---- ending


async def test_at_the_soft_deadline_children_are_stopped_and_it_hands_in(tmp_path: Path) -> None:
    """S2.4: an answer comes before the hard deadline."""
    error = {"type": "timeout", "message": "Not counted.", "code": "TIMEOUT", "recoverable": True, "recommendation": "More time."}
    hand_in = Reply(lambda request: Say(valid_return(request, status="partial", errors=[error])))
    forever = Call("delegate", target="count", operation="forever", parameters={})
    async with stage(tmp_path, [[forever, COUNT], hand_in], timeout=10) as (remit, server):
        result = await asked(remit, timeout=4)
        children = await remit.children(result.session_id)
    assert (result.status, result.stop_reason) == (Status.PARTIAL, StopReason.FINISHED), result
    assert result.errors[0].message == "Not counted."
    last = server.requests[-1]
    assert "Time is nearly up" in last.text
    assert not last.tools
    assert last.text.rstrip().endswith("```")
    assert {child.agent: str(child.state) for child in children} == {"count.forever": "cancelled", "count.up": "completed"}


async def test_cancelling_reaches_down_and_nothing_is_asked_any_more(tmp_path: Path) -> None:
    forever = Call("delegate", target="count", operation="forever", parameters={})
    async with stage(tmp_path, [[forever, forever]]) as (remit, server):
        handle = await remit.start("thinker", parameters={"task": "Think."})
        while len(await remit.children(handle.session_id)) < 2:  # noqa: ASYNC110 - they are another's
            await asyncio.sleep(0.02)
        await remit.cancel(handle.session_id, "enough")
        result = await handle.result()
        states = {str(child.state) for child in await remit.children(handle.session_id)}
    assert result.stop_reason is StopReason.CANCELLED
    assert states == {"cancelled"}
    assert len(server.requests) == 1


async def test_the_budget_of_tokens_stops_it(tmp_path: Path) -> None:
    """S8."""
    async with stage(tmp_path, lambda _: COUNT.using(1000, 10)) as (remit, server):
        result = await asked(remit, budget=Limits(tokens=3500))
    assert result.stop_reason is StopReason.BUDGET
    assert result.errors[0].code == "BUDGET_EXCEEDED"
    assert len(server.requests) <= 4


async def test_its_children_work_in_its_own_room(tmp_path: Path) -> None:
    write = Call("delegate", target="note", parameters={"text": "Noted."})
    claim = Reply(lambda request: Say(valid_return(request, artifacts=["note.txt"])))
    (tmp_path / "old.txt").write_text("old")
    async with stage(tmp_path, [write, claim], workspace="copy") as (remit, _):
        result = await asked(remit)
    assert result.ok, result
    assert not (tmp_path / "note.txt").exists()
    assert any(artifact.path.endswith("/note.txt") for artifact in result.artifacts)


async def test_a_run_goes_on_with_the_conversation_of_the_one_it_resumes(tmp_path: Path) -> None:
    """S8: and under its own session id."""
    slow = lambda request: COUNT if request.answers == 0 else Silence() if "You were interrupted" not in request.text else DONE  # noqa: E731
    async with stage(tmp_path, slow, resumable=True) as (remit, server):
        first = await asked(remit, timeout=1)
        second = await asked(remit, resume=first.session_id)
    assert first.errors[0].code == "TIMEOUT", second
    assert second.ok
    assert len(shown(server.requests[1])) == 1
    assert [message.role for message in server.requests[-1].messages].count("tool") == 1


# ---- answers that are the result itself, and schemas

CITY = {
    "type": "object",
    "properties": {"name": {"type": "string", "minLength": 1}, "people": {"type": "integer", "minimum": 1}},
    "required": ["name", "people"],
    "additionalProperties": False,
}
OSLO = {"name": "Oslo", "people": 700_000}


async def test_data_must_be_as_the_output_schema_says_and_is_repaired_once(tmp_path: Path) -> None:
    wrong = Reply(lambda request: Say(valid_return(request, data={"name": "", "people": "many"})))
    right = Reply(lambda request: Say(valid_return(request, data=OSLO)))
    async with stage(tmp_path, [wrong, right], output_schema=CITY) as (remit, server):
        result = await asked(remit)
    assert result.ok, result
    assert result.data == OSLO
    assert '"minLength"' in server.requests[0].text
    told = server.requests[1].last.text
    assert "- data.people: 'many' is not of type 'integer'" in told
    assert "- data.name: " in told
    async with stage(tmp_path, [DONE], output_schema=CITY) as (remit, _):
        result = await asked(remit)
    assert result.errors[0].code == "VALIDATION_FAILED"
    assert result.errors[0].message.startswith("data: is required")


async def test_an_agent_without_tools_is_held_to_its_schema_from_the_start(tmp_path: Path) -> None:
    right = Reply(lambda request: Say(valid_return(request, data=OSLO)))
    async with stage(tmp_path, [right], output_schema=CITY, tools=[]) as (remit, server):
        assert (await asked(remit)).ok
    assert "minLength" in json.dumps(server.requests[0].body["response_format"])


async def test_an_answer_that_is_the_result_itself_is_given_as_it_is(tmp_path: Path) -> None:
    async with stage(tmp_path, [Say("Forty-two.")], answers="value") as (remit, server):
        result = await asked(remit)
    assert result.ok
    assert result.data == "Forty-two."
    assert "How to answer" not in server.requests[0].text
    fenced = Say(f"Here:\n```json\n{json.dumps(OSLO)}\n```")
    async with stage(tmp_path, [Say("Oslo, I think."), fenced], answers="value", output_schema=CITY) as (remit, server):
        result = await asked(remit)
    assert result.ok, result
    assert result.data == OSLO


async def test_the_schema_of_a_python_agent_is_checked_too(tmp_path: Path) -> None:
    async def city(people: int) -> dict[str, Any]:
        return {"name": "Oslo", "people": people}

    declared = agent("city")(city)
    described = FunctionAgent(city, replace(declared.spec, output_schema=CITY))
    async with Remit.open(tmp_path, agents=[described]) as remit:
        good = await remit.delegate("city", people=3)
        bad = await remit.delegate("city", people=-3)
    assert good.ok
    assert bad.errors[0].code == "VALIDATION_FAILED"
    assert bad.errors[0].message.startswith("data.people: -3")
