"""Model agents against a scripted model: the ladder of S3.7, the one tool, limits, and what hostile models do (items 2, 3 and 7)."""

import asyncio
import json
from pathlib import Path

from model_stage import COUNT, DONE, asked, settings_for, shown, stage

from remit import Remit, agent
from remit.core.result import Status, StopReason
from remit.flow.format import format_instruction
from remit.testing.models import Call, Garbled, Reply, Say, ScriptedModels, Stray, valid_return

# ---- the prompt and the ladder


async def test_the_prompt_ends_with_the_format_instruction_and_the_instructions_are_the_system_prompt(tmp_path: Path) -> None:
    """S3.8."""
    async with stage(tmp_path, [DONE], instructions="You are terse.") as (remit, server):
        result = await asked(remit)
    prompt, request = server.requests[0].text, server.requests[0]
    assert result.ok, result
    assert request.system.startswith("You are terse.")
    assert prompt.rstrip().endswith(format_instruction(result.session_id, "thinker", 1, ("orchestrator", "thinker")).rstrip())
    assert "count.up" in prompt
    assert "worker" not in prompt
    assert [tool.name for tool in request.tools] == ["delegate"]
    assert any("price" in warning for warning in result.warnings)


async def test_prose_is_repaired_once_in_the_same_conversation_with_the_exact_errors(tmp_path: Path) -> None:
    """S3.7: and with the schema of the return, where the provider holds a model to one."""
    async with stage(tmp_path, [COUNT, Say("I thought about it."), DONE]) as (remit, server):
        result = await asked(remit)
    repair = server.requests[2]
    assert result.ok, result
    assert any("repaired" in warning for warning in result.warnings)
    assert "Return is not valid JSON: no JSON object was found in the answer" in repair.last.text
    assert "I thought about it." in [message.text for message in repair.messages]
    assert repair.last.text.rstrip().endswith("```")
    assert not repair.tools
    assert "sess_" in json.dumps(repair.body["response_format"])


async def test_an_answer_that_is_faulty_twice_fails_and_the_originals_are_kept(tmp_path: Path) -> None:
    async with stage(tmp_path, [Say("First prose."), Say("Second prose.")]) as (remit, server):
        result = await asked(remit)
        kept = [(tmp_path / artifact.path).read_text() for artifact in result.artifacts]
    assert (result.status, result.stop_reason) == (Status.FAILED, StopReason.INVALID_RETURN)
    assert result.errors[0].code == "VALIDATION_FAILED"
    assert result.errors[0].message.startswith("Return is not valid JSON")
    assert result.errors[0].recommendation.startswith("Fix thinker subagent return format. Its answer is kept in ")
    assert any("First prose." in text for text in kept)
    assert any("Second prose." in text for text in kept)
    assert len(server.requests) == 2


async def test_a_missing_file_is_written_in_the_repair(tmp_path: Path) -> None:
    """Where more than the form is wrong, the repair has the tool."""
    claim = Reply(lambda request: Say(valid_return(request, artifacts=["note.txt"])))
    write = Call("delegate", target="note", parameters={"text": "Noted."})
    async with stage(tmp_path, [claim, write, claim]) as (remit, server):
        result = await asked(remit)
    assert result.ok
    assert "note.txt" in [artifact.path for artifact in result.artifacts]
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
    assert "Your only tool is delegate" in told[0]
    assert "count, note" in told[0]
    assert "must be one JSON object" in told[1]
    assert all("INVALID_TARGET" in one and "count" in one for one in told[2:5])
    assert "INVALID_OPERATION" in told[5]
    assert "up" in told[5]
    assert "INVALID_PARAMETERS" in told[6]
    assert "number" in told[6]
    assert json.loads(told[7])["data"] == 2
    assert [child.agent for child in children] == ["count.up"]


async def test_a_model_without_tools_is_offered_none_and_can_reach_nothing(tmp_path: Path) -> None:
    async with stage(tmp_path, [Stray("delegate", target="worker"), DONE], tools=[]) as (remit, server):
        result = await asked(remit)
        assert not await remit.children(result.session_id)
    assert result.ok
    assert not server.requests[0].tools
    assert "You have no tools" in server.requests[0].text
    assert "you have none" in server.requests[1].last.text


async def test_a_model_that_calls_nothing_valid_is_given_up(tmp_path: Path) -> None:
    async with stage(tmp_path, lambda _: Stray("run_shell", command="ls")) as (remit, server):
        result = await asked(remit)
    assert result.status is Status.FAILED
    assert "6 turns in a row" in result.errors[0].message
    assert "run_shell" in result.errors[0].message
    assert len(server.requests) == 6


async def test_a_model_that_never_stops_is_told_to_answer_and_then_ended(tmp_path: Path) -> None:
    """On the last request the tool is withheld."""
    async with stage(tmp_path, lambda request: COUNT if request.tools else DONE, requests=4) as (remit, server):
        result = await asked(remit)
    assert result.ok
    assert len(server.requests) == 4
    last = server.requests[-1]
    assert not last.tools
    assert "You can call nothing any more" in last.text
    async with stage(tmp_path, lambda request: Stray("delegate", **COUNT.arguments), requests=3) as (remit, server):
        result = await asked(remit)
    assert result.status is Status.FAILED
    assert "asked 3 times and gave no answer" in result.errors[0].message


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
    assert result.ok
    assert refused
    assert json.loads(refused[0])["error"]["cause"] == "CYCLE_DETECTED"
