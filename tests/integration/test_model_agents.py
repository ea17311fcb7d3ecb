"""Model agents against a scripted model: the ladder of S3.7, the one tool, limits, and what hostile models do (items 2, 3 and 7)."""

import asyncio
import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from model_stage import settings_for, shown, stage

from remit import Remit, Return, agent
from remit.agents.function import FunctionAgent
from remit.core.budget import Limits
from remit.core.result import Status, StopReason
from remit.flow.format import format_instruction
from remit.testing.models import Call, Cut, Drip, Fail, Garbled, Reply, Say, ScriptedModels, Silence, Stray, valid_return
from remit.testing.models.request import ModelRequest

DONE = Reply(lambda request: Say(valid_return(request)))
COUNT = Call("delegate", target="count", operation="up", parameters={"number": 1})


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SCRIPTED_KEY", "a key")


async def asked(remit: Remit, task: str = "Think about it.", **more: Any) -> Return:
    return await remit.delegate("thinker", parameters={"task": task}, **more)


def bare(request: ModelRequest) -> str:
    """The return alone, as JSON."""
    return valid_return(request).split("```json\n")[1].split("\n```")[0]


# ---- the prompt and the ladder


async def test_the_prompt_ends_with_the_format_instruction_and_the_instructions_are_the_system_prompt(tmp_path: Path) -> None:
    """S3.8."""
    async with stage(tmp_path, [DONE], instructions="You are terse.") as (remit, server):
        result = await asked(remit)
    prompt, request = server.requests[0].text, server.requests[0]
    assert result.ok, result
    assert request.system.startswith("You are terse.")
    assert prompt.rstrip().endswith(format_instruction(result.session_id, "thinker", 1, ("orchestrator", "thinker")).rstrip())
    assert "count.up" in prompt and "worker" not in prompt
    assert [tool.name for tool in request.tools] == ["delegate"]
    assert any("price" in warning for warning in result.warnings)


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(bare, id="json"),
        pytest.param(valid_return, id="fence"),
        pytest.param(lambda request: f"Here it is: {bare(request)}. That is all.", id="prose"),
        pytest.param(lambda request: json.dumps(bare(request)), id="json in a string"),
    ],
)
async def test_a_return_is_read_wherever_it_stands(tmp_path: Path, answer: Any) -> None:
    """S3.7."""
    async with stage(tmp_path, [Reply(lambda request: Say(answer(request)))]) as (remit, server):
        result = await asked(remit)
    assert result.ok and result.summary.startswith("Did what was asked."), result
    assert len(server.requests) == 1


async def test_prose_is_repaired_once_in_the_same_conversation_with_the_exact_errors(tmp_path: Path) -> None:
    """S3.7: and with the schema of the return, where the provider holds a model to one."""
    async with stage(tmp_path, [COUNT, Say("I thought about it."), DONE]) as (remit, server):
        result = await asked(remit)
    repair = server.requests[2]
    assert result.ok and any("repaired" in warning for warning in result.warnings), result
    assert "Return is not valid JSON: no JSON object was found in the answer" in repair.last.text
    assert "I thought about it." in [message.text for message in repair.messages]
    assert repair.last.text.rstrip().endswith("```")
    assert not repair.tools and "sess_" in json.dumps(repair.body["response_format"])


async def test_an_answer_that_is_faulty_twice_fails_and_the_originals_are_kept(tmp_path: Path) -> None:
    async with stage(tmp_path, [Say("First prose."), Say("Second prose.")]) as (remit, server):
        result = await asked(remit)
        kept = [(tmp_path / artifact.path).read_text() for artifact in result.artifacts]
    assert (result.status, result.stop_reason) == (Status.FAILED, StopReason.INVALID_RETURN)
    assert result.errors[0].code == "VALIDATION_FAILED" and result.errors[0].message.startswith("Return is not valid JSON")
    assert result.errors[0].recommendation == "Fix thinker subagent return format"
    assert any("First prose." in text for text in kept) and any("Second prose." in text for text in kept)
    assert len(server.requests) == 2


async def test_a_wrong_session_id_is_caught_and_corrected(tmp_path: Path) -> None:
    """S3.8: a different session id in the return is invalid."""
    wrong = Reply(lambda request: Say(_with_session(bare(request), "sess_1700000000_abc123")))
    async with stage(tmp_path, [wrong, DONE]) as (remit, server):
        result = await asked(remit)
    assert result.ok
    assert f"metadata.session_id: must be '{result.session_id}', not 'sess_1700000000_abc123'" in server.requests[1].last.text


def _with_session(text: str, session_id: str) -> str:
    fields = json.loads(text)
    fields["metadata"]["session_id"] = session_id
    return json.dumps(fields)


async def test_a_missing_file_is_written_in_the_repair(tmp_path: Path) -> None:
    """Where more than the form is wrong, the repair has the tool."""
    claim = Reply(lambda request: Say(valid_return(request, artifacts=["note.txt"])))
    write = Call("delegate", target="note", parameters={"text": "Noted."})
    async with stage(tmp_path, [claim, write, claim]) as (remit, server):
        result = await asked(remit)
    assert result.ok and "note.txt" in [artifact.path for artifact in result.artifacts]
    assert "artifacts: 'note.txt'" in server.requests[1].last.text


# ---- calling


async def test_twenty_calls_run_at_once_and_come_back_in_call_order(tmp_path: Path) -> None:
    """S5.8: and one that fails loses none of the others."""
    together = asyncio.Barrier(19)

    @agent("meet")
    async def meet(number: int) -> int:
        if number == 7:
            raise ValueError("seven never comes")
        await asyncio.wait_for(together.wait(), 10)
        return number

    calls = [Call("delegate", target="meet", parameters={"number": number}) for number in range(20)]
    async with stage(tmp_path, [calls, DONE], agents=[meet], tools=["meet"]) as (remit, server):
        result = await asked(remit)
    results = [json.loads(text) for text in shown(server.requests[1])]
    assert result.ok, result
    assert [one.get("data") for one in results] == [None if number == 7 else number for number in range(20)]
    assert results[7].get("success") is False, results[7]
    assert "seven never comes" in results[7]["error"]["message"]


async def test_calls_that_cannot_be_made_are_answered_with_what_is_allowed(tmp_path: Path) -> None:
    faults = [
        Stray("run_shell", command="rm -rf /"),
        Garbled("delegate", '{"target": "count", '),
        Call("delegate", target="worker", operation="read_file", parameters={"path": "secret"}),
        Call("delegate", target="worker.read_file", parameters={"path": "secret"}),
        Call("delegate", target="thinker", parameters={"task": "again"}),
        Call("delegate", target="count", operation="down", parameters={}),
        Call("delegate", target="count", operation="up", parameters={"number": "many"}),
        COUNT,
    ]
    async with stage(tmp_path, [faults, DONE]) as (remit, server):
        result = await asked(remit)
        children = await remit.children(result.session_id)
    told = shown(server.requests[1])
    assert result.ok
    assert "Your only tool is delegate" in told[0] and "count, note" in told[0]
    assert "must be one JSON object" in told[1]
    assert all("INVALID_TARGET" in one and "count" in one for one in told[2:5])
    assert "INVALID_OPERATION" in told[5] and "up" in told[5]
    assert "INVALID_PARAMETERS" in told[6] and "number" in told[6]
    assert json.loads(told[7])["data"] == 2
    assert [child.agent for child in children] == ["count.up"]


async def test_a_model_without_tools_is_offered_none_and_can_reach_nothing(tmp_path: Path) -> None:
    async with stage(tmp_path, [Stray("delegate", target="worker"), DONE], tools=[]) as (remit, server):
        result = await asked(remit)
        assert not await remit.children(result.session_id)
    assert result.ok and not server.requests[0].tools
    assert "You have no tools" in server.requests[0].text and "you have none" in server.requests[1].last.text


async def test_a_model_that_calls_nothing_valid_is_given_up(tmp_path: Path) -> None:
    async with stage(tmp_path, lambda _: Stray("run_shell", command="ls")) as (remit, server):
        result = await asked(remit)
    assert result.status is Status.FAILED
    assert "6 turns in a row" in result.errors[0].message and "run_shell" in result.errors[0].message
    assert len(server.requests) == 6


async def test_a_model_that_never_stops_is_told_to_answer_and_then_ended(tmp_path: Path) -> None:
    """On the last request the tool is withheld."""
    async with stage(tmp_path, lambda request: COUNT if request.tools else DONE, requests=4) as (remit, server):
        result = await asked(remit)
    assert result.ok and len(server.requests) == 4
    last = server.requests[-1]
    assert not last.tools and "You can call nothing any more" in last.text
    async with stage(tmp_path, lambda request: Stray("delegate", **COUNT.arguments), requests=3) as (remit, server):
        result = await asked(remit)
    assert result.status is Status.FAILED and "asked 3 times and gave no answer" in result.errors[0].message


async def test_recursion_comes_back_as_a_result(tmp_path: Path) -> None:
    """S1.3, S1.4: depth and cycles are refused, and said to the model."""
    other = {"asker": {"kind": "model", "tools": ["thinker"], "timeout": 20}}
    call_other = Call("delegate", target="asker", parameters={"task": "Ask the thinker."})
    call_thinker = Call("delegate", target="thinker", parameters={"task": "Ask the other."})
    script = {"Ask the thinker.": [call_thinker, DONE], "Think about it.": [call_other, DONE]}
    async with ScriptedModels(script) as server:
        settings = settings_for(server, {"tools": ["asker"]})
        settings["agents"].update(other)
        async with Remit.open(tmp_path, settings=settings) as remit:
            result = await asked(remit)
    assert not server.faults, server.faults
    refused = [text for request in server.requests for text in shown(request) if "CYCLE_DETECTED" in text]
    assert result.ok and refused
    assert json.loads(refused[0])["error"]["cause"] == "CYCLE_DETECTED"


async def test_of_a_long_result_a_part_is_shown_with_how_to_read_on(tmp_path: Path) -> None:
    long = Call("delegate", target="count", operation="long", parameters={})
    async with stage(tmp_path, [long, DONE]) as (remit, server):
        result = await asked(remit)
        children = await remit.children(result.session_id)
    told = shown(server.requests[1])[0]
    document = json.loads(told)
    assert len(told) <= 16_000 and document["data"].startswith("000000") and document["data"].endswith("019999\n")
    assert document["leftOut"]["data"] > 100_000
    assert document["readOn"]["parameters"]["taskId"] == children[0].session_id
    whole = children[0].result
    assert whole is not None and whole.data[: document["readOn"]["parameters"]["offset"]] == document["data"].partition(" … (")[0]


# ---- trouble with the model


async def test_429_then_an_answer_is_an_answer(tmp_path: Path) -> None:
    async with stage(tmp_path, [Fail(429, retry_after=0.05), DONE]) as (remit, _):
        assert (await asked(remit)).ok


async def test_a_stream_that_breaks_off_is_named_or_goes_over_to_the_next_model(tmp_path: Path) -> None:
    async with ScriptedModels([Cut("Half an ans")]) as broken, ScriptedModels([DONE]) as sound:
        settings = settings_for(broken, {})
        settings["models"]["second"] = {**settings["models"]["scripted"], "url": sound.openai_url}
        async with Remit.open(tmp_path, settings=settings) as remit:
            alone = await asked(remit)
        async with Remit.open(tmp_path, settings={**settings, "model": ["scripted", "second"]}) as remit:
            result = await asked(remit)
            events = await remit.events(result.session_id)
    assert alone.status is Status.FAILED and alone.errors[0].code == "AGENT_UNAVAILABLE" and "scripted" in alone.errors[0].message
    assert result.ok
    assert any("scripted did not answer" in str(event.body) and "asked second" in str(event.body) for event in events)


async def test_no_model_is_blocked_with_the_line_to_write(tmp_path: Path) -> None:
    settings = {"agents": {"thinker": {"kind": "model"}}}
    async with Remit.open(tmp_path, settings=settings) as remit:
        result = await asked(remit)
    assert (result.status, result.errors[0].code) == (Status.BLOCKED, "TOOL_UNAVAILABLE")
    assert "model" in result.errors[0].recommendation


async def test_a_reply_of_two_hundred_thousand_tokens_is_cut_off_and_harms_nobody(tmp_path: Path) -> None:
    flood = Say("word " * 200_000)
    async with stage(tmp_path, [flood, DONE]) as (remit, server):
        result = await asked(remit)
    assert result.ok, result
    assert len(json.dumps(server.requests[1].body)) < 700_000


async def test_a_model_that_drips_is_ended_at_the_deadline_with_what_it_said(tmp_path: Path) -> None:
    """S2.6."""
    started = time.monotonic()
    async with stage(tmp_path, lambda _: Drip("A first part of it. " * 40, seconds=60), timeout=2) as (remit, _):
        result = await asked(remit)
    assert time.monotonic() - started < 8
    assert (result.status, result.errors[0].code) == (Status.PARTIAL, "TIMEOUT")
    assert "A first part" in json.dumps(result.data)


async def test_a_silent_model_is_a_timeout(tmp_path: Path) -> None:
    async with stage(tmp_path, [Silence()], timeout=1) as (remit, _):
        result = await asked(remit)
    assert (result.status, result.errors[0].code) == (Status.PARTIAL, "TIMEOUT")


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
    assert "Time is nearly up" in last.text and not last.tools
    assert last.text.rstrip().endswith("```")
    assert {child.agent: str(child.state) for child in children} == {"count.forever": "cancelled", "count.up": "completed"}


async def test_cancelling_reaches_down_and_nothing_is_asked_any_more(tmp_path: Path) -> None:
    forever = Call("delegate", target="count", operation="forever", parameters={})
    async with stage(tmp_path, [[forever, forever]]) as (remit, server):
        handle = await remit.start("thinker", parameters={"task": "Think."})
        while len(await remit.children(handle.session_id)) < 2:
            await asyncio.sleep(0.02)
        await remit.cancel(handle.session_id, "enough")
        result = await handle.result()
        states = {str(child.state) for child in await remit.children(handle.session_id)}
    assert result.stop_reason is StopReason.CANCELLED and states == {"cancelled"}
    assert len(server.requests) == 1


async def test_the_budget_of_tokens_stops_it(tmp_path: Path) -> None:
    """S8."""
    async with stage(tmp_path, lambda _: COUNT.using(1000, 10)) as (remit, server):
        result = await asked(remit, budget=Limits(tokens=3500))
    assert result.stop_reason is StopReason.BUDGET and result.errors[0].code == "BUDGET_EXCEEDED"
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
    assert first.errors[0].code == "TIMEOUT" and second.ok, second
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
    assert result.ok and result.data == OSLO, result
    assert '"minLength"' in server.requests[0].text
    told = server.requests[1].last.text
    assert "- data.people: 'many' is not of type 'integer'" in told and "- data.name: " in told
    async with stage(tmp_path, [DONE], output_schema=CITY) as (remit, _):
        result = await asked(remit)
    assert result.errors[0].code == "VALIDATION_FAILED" and result.errors[0].message.startswith("data: is required")


async def test_an_agent_without_tools_is_held_to_its_schema_from_the_start(tmp_path: Path) -> None:
    right = Reply(lambda request: Say(valid_return(request, data=OSLO)))
    async with stage(tmp_path, [right], output_schema=CITY, tools=[]) as (remit, server):
        assert (await asked(remit)).ok
    assert "minLength" in json.dumps(server.requests[0].body["response_format"])


async def test_an_answer_that_is_the_result_itself_is_given_as_it_is(tmp_path: Path) -> None:
    async with stage(tmp_path, [Say("Forty-two.")], answers="value") as (remit, server):
        result = await asked(remit)
    assert result.ok and result.data == "Forty-two."
    assert "How to answer" not in server.requests[0].text
    fenced = Say(f"Here:\n```json\n{json.dumps(OSLO)}\n```")
    async with stage(tmp_path, [Say("Oslo, I think."), fenced], answers="value", output_schema=CITY) as (remit, server):
        result = await asked(remit)
    assert result.ok and result.data == OSLO, result


async def test_the_schema_of_a_python_agent_is_checked_too(tmp_path: Path) -> None:
    async def city(people: int) -> dict[str, Any]:
        return {"name": "Oslo", "people": people}

    declared = agent("city")(city)
    described = FunctionAgent(city, replace(declared.spec, output_schema=CITY))
    async with Remit.open(tmp_path, agents=[described]) as remit:
        good = await remit.delegate("city", people=3)
        bad = await remit.delegate("city", people=-3)
    assert good.ok
    assert bad.errors[0].code == "VALIDATION_FAILED" and bad.errors[0].message.startswith("data.people: -3")
