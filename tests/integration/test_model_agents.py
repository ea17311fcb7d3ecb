"""Model agents against a scripted model: validation and repair, the `delegate` tool, limits, deadlines and hostile models."""

import asyncio
import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pydantic_ai.models.openai  # noqa: F401 - takes seconds: loaded before the timeouts of the agents run
import pytest
from model_harness import AGENTS, COUNT, DONE, ask_thinker, model_project, settings_for, tool_results

from remit import FunctionAgent, Limits, Remit, Status, StopReason, agent
from remit.agents.model.context_window import room_in
from remit.runtime.return_format import format_instruction
from remit.testing import Call, Drip, Garbled, ModelRequest, Reply, Say, ScriptedModels, Silence, Stray, valid_return
from support.pace import allowed


async def test_prompt_has_system_instructions_agents_and_return_format(tmp_path: Path) -> None:
    async with model_project(tmp_path, [DONE], instructions="You are terse.") as (remit, server):
        result = await ask_thinker(remit)
    prompt, request = server.requests[0].text, server.requests[0]
    assert result.ok, result
    assert request.system.startswith("You are terse.")
    assert prompt.rstrip().endswith(format_instruction(result.session_id, "thinker", 1, ("orchestrator", "thinker")).rstrip())
    assert "count.up" in prompt
    assert "worker" not in prompt
    assert [tool.name for tool in request.tools] == ["delegate"]
    assert any("price" in warning for warning in result.warnings)


async def test_invalid_return_is_repaired_once_in_the_same_conversation(tmp_path: Path) -> None:
    """The repair request has the JSON schema of the return, if the provider supports one."""
    async with model_project(tmp_path, [COUNT, Say("I thought about it."), DONE]) as (remit, server):
        result = await ask_thinker(remit)
    repair = server.requests[2]
    assert result.ok, result
    assert any("repaired" in warning for warning in result.warnings)
    assert "Return is not valid JSON: no JSON object was found in the answer" in repair.last.text
    assert "I thought about it." in [message.text for message in repair.messages]
    assert repair.last.text.rstrip().endswith("```")
    assert not repair.tools
    assert "sess_" in json.dumps(repair.body["response_format"])


async def test_invalid_calls_are_answered_with_the_allowed_values(tmp_path: Path) -> None:
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
    async with model_project(tmp_path, [faults, DONE]) as (remit, server):
        result = await ask_thinker(remit)
        children = await remit.children(result.session_id)
    results = tool_results(server.requests[1])
    assert result.ok
    assert "Your only tool is delegate" in results[0]
    assert "count, note" in results[0]
    assert "must be one complete JSON object" in results[1]
    assert all("INVALID_TARGET" in one and "count" in one for one in results[2:5])
    assert "INVALID_OPERATION" in results[5]
    assert "up" in results[5]
    assert "INVALID_PARAMETERS" in results[6]
    assert "number" in results[6]
    assert json.loads(results[7])["data"] == 2
    assert [child.agent for child in children] == ["count.up"]


async def test_agent_without_tools_can_delegate_nothing(tmp_path: Path) -> None:
    async with model_project(tmp_path, [Stray("delegate", target="worker"), DONE], tools=[]) as (remit, server):
        result = await ask_thinker(remit)
        assert not await remit.children(result.session_id)
    assert result.ok
    assert not server.requests[0].tools
    assert "You have no tools" in server.requests[0].text
    assert "you have none" in server.requests[1].last.text


async def test_six_turns_without_a_valid_call_fail(tmp_path: Path) -> None:
    async with model_project(tmp_path, lambda _: Stray("run_shell", command="ls")) as (remit, server):
        result = await ask_thinker(remit)
    assert result.status is Status.FAILED
    assert "6 turns in a row" in result.errors[0].message
    assert "run_shell" in result.errors[0].message
    assert len(server.requests) == 6


async def test_request_limit_forces_an_answer(tmp_path: Path) -> None:
    """The last request offers no tool."""
    async with model_project(tmp_path, lambda request: COUNT if request.tools else DONE, requests=4) as (remit, server):
        result = await ask_thinker(remit)
    assert result.ok
    assert len(server.requests) == 4
    last = server.requests[-1]
    assert not last.tools
    assert "You can make no more calls" in last.text
    async with model_project(tmp_path, lambda request: Stray("delegate", **COUNT.arguments), requests=3) as (remit, server):
        result = await ask_thinker(remit)
    assert result.status is Status.FAILED
    assert "asked 3 times and gave no answer" in result.errors[0].message


@pytest.mark.parametrize("turn", [Drip("A first part of it. " * 40, seconds=60), Silence()], ids=["slow", "silent"])
async def test_deadline_ends_a_model_and_keeps_its_partial_answer(tmp_path: Path, turn: Drip | Silence) -> None:
    started = time.monotonic()
    async with model_project(tmp_path, lambda _: turn, timeout=1.5) as (remit, _):
        result = await ask_thinker(remit)
    assert time.monotonic() - started < allowed(8)
    assert (result.status, result.errors[0].code) == (Status.PARTIAL, "TIMEOUT")
    assert isinstance(turn, Silence) or "A first part" in json.dumps(result.data)


async def test_soft_deadline_stops_children_and_asks_for_the_return(tmp_path: Path) -> None:
    """The model answers before the hard deadline."""
    error = {"type": "timeout", "message": "Not counted.", "code": "TIMEOUT", "recoverable": True, "recommendation": "More time."}
    hand_in = Reply(lambda request: Say(valid_return(request, status="partial", errors=[error])))
    forever = Call("delegate", target="count", operation="forever", parameters={})
    for seconds in (4, 20):  # a tenth of it is left for the answer: more on a busy machine
        async with model_project(tmp_path, [[forever, COUNT], hand_in], timeout=30) as (remit, server):
            result = await ask_thinker(remit, timeout=seconds)
            children = await remit.children(result.session_id)
        if result.stop_reason is StopReason.FINISHED:
            break
    assert (result.status, result.stop_reason) == (Status.PARTIAL, StopReason.FINISHED), result
    assert result.errors[0].message == "Not counted."
    last = server.requests[-1]
    assert "Time is nearly up" in last.text
    assert not last.tools
    assert last.text.rstrip().endswith("```")
    assert {child.agent: str(child.state) for child in children} == {"count.forever": "cancelled", "count.up": "completed"}


async def test_cancelling_stops_children_and_model_requests(tmp_path: Path) -> None:
    forever = Call("delegate", target="count", operation="forever", parameters={})
    async with model_project(tmp_path, [[forever, forever]]) as (remit, server):
        handle = await remit.start("thinker", parameters={"task": "Think."})
        while len(await remit.children(handle.session_id)) < 2:  # noqa: ASYNC110
            await asyncio.sleep(0.02)
        await remit.cancel(handle.session_id, "enough")
        result = await handle.result()
        states = {str(child.state) for child in await remit.children(handle.session_id)}
    assert result.stop_reason is StopReason.CANCELLED
    assert states == {"cancelled"}
    assert len(server.requests) == 1


async def test_token_budget_stops_the_agent(tmp_path: Path) -> None:
    async with model_project(tmp_path, lambda _: COUNT.using(1000, 10)) as (remit, server):
        result = await ask_thinker(remit, budget=Limits(tokens=3500))
    assert result.stop_reason is StopReason.BUDGET
    assert result.errors[0].code == "BUDGET_EXCEEDED"
    assert len(server.requests) <= 4


async def test_resumed_run_continues_the_conversation(tmp_path: Path) -> None:
    """The resumed run has its own session id."""
    slow = lambda request: COUNT if request.answers == 0 else Silence() if "You were interrupted" not in request.text else DONE  # noqa: E731
    async with model_project(tmp_path, slow, resumable=True) as (remit, server):
        first = await ask_thinker(remit, timeout=1)
        second = await ask_thinker(remit, resume=first.session_id)
    assert first.errors[0].code == "TIMEOUT", second
    assert second.ok
    assert len(tool_results(server.requests[1])) == 1
    assert [message.role for message in server.requests[-1].messages].count("tool") == 1


# ---- plain answers and schemas

CITY = {
    "type": "object",
    "properties": {"name": {"type": "string", "minLength": 1}, "people": {"type": "integer", "minimum": 1}},
    "required": ["name", "people"],
    "additionalProperties": False,
}
OSLO = {"name": "Oslo", "people": 700_000}


async def test_plain_answer_is_the_data_of_the_result(tmp_path: Path) -> None:
    async with model_project(tmp_path, [Say("Forty-two.")], answers="value") as (remit, server):
        result = await ask_thinker(remit)
    assert result.ok
    assert result.data == "Forty-two."
    assert "How to answer" not in server.requests[0].text
    fenced = Say(f"Here:\n```json\n{json.dumps(OSLO)}\n```")
    async with model_project(tmp_path, [Say("Oslo, I think."), fenced], answers="value", output_schema=CITY) as (remit, server):
        result = await ask_thinker(remit)
    assert result.ok, result
    assert result.data == OSLO


async def test_output_schema_of_a_python_agent_is_enforced(tmp_path: Path) -> None:
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


async def test_requests_fit_into_the_context_window(tmp_path: Path) -> None:
    """Requests stay below the context window, however large the results are."""
    window = 4000
    long = Call("delegate", target="count", operation="long", parameters={})
    write = Call("delegate", target="note", parameters={"text": "y" * 30_000})
    script = lambda request: [long, write, long] if request.tools and request.answers < 6 else DONE  # noqa: E731
    async with ScriptedModels(script) as server:
        settings = settings_for(server, {"instructions": "Be brief."})
        settings["models"]["scripted"]["context_tokens"] = window
        async with Remit.open(tmp_path, agents=AGENTS, settings=settings) as remit:
            assert (await ask_thinker(remit)).ok
    assert len(server.requests) == 7
    for request in server.requests:
        assert len(json.dumps(request.body["messages"])) < 3 * window
        assert request.messages[0].text.startswith("Be brief.")
        assert "Think about it." in request.text
    assert (tmp_path / "note.txt").read_text() == "y" * 30_000
    assert room_in(None, 0) == room_in(1_000_000, 0) == 80_000


async def test_results_read_returns_only_results_of_the_caller(tmp_path: Path) -> None:
    """Results of the caller and of siblings in the same tree are refused too."""
    ids: dict[str, str] = {}

    @agent("vault")
    async def vault() -> str:
        return "a secret"

    def read(*names: str) -> list[Call]:
        return [Call("delegate", target="results", operation="read", parameters={"taskId": ids[name]}) for name in names]

    def thinker(request: ModelRequest) -> Any:
        if not request.results:
            return Call("delegate", target="vault", parameters={})
        ids["sibling"] = json.loads(request.results[0])["taskId"]
        if len(request.results) == 1:
            return [Call("delegate", target="spy", parameters={"task": "Spy on it."}), *read("sibling")]
        return DONE

    def spy(request: ModelRequest) -> Any:
        if not request.results:
            return COUNT
        ids["own"] = json.loads(request.results[0])["taskId"]
        return read("own", "sibling", "other") if len(request.results) == 1 else DONE

    def script(request: ModelRequest) -> Any:
        return spy(request) if "Spy on it." in request.text else thinker(request)

    async with ScriptedModels(script) as server:
        settings = settings_for(server, {"tools": ["vault", "spy"]})
        settings["agents"]["spy"] = {"kind": "model", "tools": ["count"], "timeout": 20}
        async with Remit.open(tmp_path, agents=[*AGENTS, vault], settings=settings) as remit:
            ids["other"] = (await remit.delegate("vault")).session_id
            assert (await ask_thinker(remit)).ok
    seen = next(tool_results(one) for one in server.requests if "Spy on it." in one.text and len(one.results) == 4)
    assert '"text":"2"' in seen[0]
    assert all("POLICY_DENIED" in one and "a secret" not in one for one in seen[1:])
    assert any('"text":"a secret"' in text for one in server.requests for text in one.results)


async def test_composition_is_limited_to_the_tools_of_its_model(tmp_path: Path) -> None:
    steps = [{"call": "count.up", "parameters": {"number": 1}}, {"call": "note"}]
    composed = Call("delegate", target="compose", operation="run", parameters={"sequence": steps})
    async with model_project(tmp_path, [composed, DONE], tools=["count", "compose"]) as (remit, server):
        done = await ask_thinker(remit)
        assert "Step 1: There is no target 'note'" in server.requests[-1].last.text
        assert not await remit.children(done.session_id)
    assert not (tmp_path / "note.txt").exists()
