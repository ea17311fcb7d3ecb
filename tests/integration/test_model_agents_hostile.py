"""Model agents whose model is against them: endless calls, monstrous arguments, small windows, others' results (items 2, 3 and 7)."""

import json
from pathlib import Path
from typing import Any

from model_stage import AGENTS, DONE, asked, settings_for, shown, stage

from remit import Remit, agent
from remit.agents.model.keeping import room_in
from remit.agents.model.taking import ARGUMENT_CHARACTERS, MOST_CALLS
from remit.testing.models import Call, Fail, Garbled, ScriptedModels, Stray
from remit.testing.models.request import ModelRequest


def up(number: int) -> Call:
    return Call("delegate", target="count", operation="up", parameters={"number": number})


def nested(levels: int) -> str:
    return f'{{"target": "note", "parameters": {{"text": {"[" * levels}{"]" * levels}}}}}'


async def test_arguments_that_cannot_be_written_down_are_told_and_the_talk_goes_on(tmp_path: Path) -> None:
    monsters = [nested(levels) for levels in (100, 300, 900, 990, 10_000)]
    monsters.append(f'{{"target": "count", "operation": "up", "parameters": {{"number": 1{"0" * 4250}}}}}')
    monsters.append('{"target": "note", "parameters": {"text": "half \\ud800 a letter"}}')
    monsters.append(json.dumps({"target": "note", "parameters": {"text": "x" * (ARGUMENT_CHARACTERS + 1)}}))
    async with stage(tmp_path, [[up(1), *(Garbled("delegate", one) for one in monsters)], DONE]) as (remit, server):
        result = await asked(remit)
        assert result.ok, result
        assert [child.agent for child in await remit.children(result.session_id) if str(child.state) == "completed"] == ["count.up"]
    told = shown(server.requests[1])
    assert len(told) == len(monsters) + 1
    assert json.loads(told[0])["data"] == 2
    assert all("nested deeper than 60 levels" in one for one in told[1:4])
    assert "4,000 digits" in told[6]
    assert "must be one JSON object" in told[8]
    assert len(json.dumps(server.requests[1].body)) < 60_000


async def test_of_a_hundred_calls_the_first_are_made_and_the_others_told_to_come_later(tmp_path: Path) -> None:
    async with stage(tmp_path, [[up(number) for number in range(100)], DONE]) as (remit, server):
        result = await asked(remit)
        assert result.ok, result
        assert len(await remit.children(result.session_id)) == MOST_CALLS
    results = [message.text for message in server.requests[1].messages if message.role == "tool"]
    assert [json.loads(one)["data"] for one in results] == list(range(1, MOST_CALLS + 1))
    assert server.requests[1].last.text == f"Only the first {MOST_CALLS} of your 100 calls were made. Make the others in your next turn."


async def test_one_that_still_calls_when_it_is_to_hand_in_has_run_out_of_time(tmp_path: Path) -> None:
    """S2.6: never failed by its deadline."""

    @agent("doze")
    async def doze(ctx: Any) -> str:
        await ctx.wait_hand_in()
        return "Awake."

    async with stage(tmp_path, lambda _: Stray("delegate", target="doze", parameters={}), agents=[doze], tools=["doze"]) as (remit, server):
        result = await asked(remit, timeout=3)
    assert (str(result.status), result.errors[0].code) == ("partial", "TIMEOUT"), result
    assert len(server.requests) > 1


async def test_what_a_model_is_asked_fits_into_what_it_can_read(tmp_path: Path) -> None:
    """However much its delegations give, and however often: a small local model would refuse, or forget its task."""
    window = 4000
    long = Call("delegate", target="count", operation="long", parameters={})
    write = Call("delegate", target="note", parameters={"text": "y" * 30_000})
    script = lambda request: [long, write, long] if request.tools and request.answers < 6 else DONE  # noqa: E731
    async with ScriptedModels(script) as server:
        settings = settings_for(server, {"instructions": "Be brief."})
        settings["models"]["scripted"]["context_tokens"] = window
        async with Remit.open(tmp_path, agents=AGENTS, settings=settings) as remit:
            assert (await asked(remit)).ok
    assert len(server.requests) == 7
    for request in server.requests:
        assert len(json.dumps(request.body["messages"])) < 3 * window
        assert request.messages[0].text.startswith("Be brief.")
        assert "Think about it." in request.text
    assert (tmp_path / "note.txt").read_text() == "y" * 30_000
    assert room_in(None, 0) == room_in(1_000_000, 0) == 80_000


async def test_the_temperature_of_its_file_is_passed_on_and_left_out_where_the_model_takes_none(tmp_path: Path) -> None:
    folder = tmp_path / ".opencode" / "agent"
    folder.mkdir(parents=True)
    (folder / "cool.md").write_text("---\ndescription: Cool.\ntemperature: 0.2\n---\nBe cool.\n")
    refuse = Fail(400, "Unsupported parameter: 'temperature' is not supported with this model.")
    script = lambda request: refuse if "temperature" in request.body and "Refuse it." in request.text else DONE  # noqa: E731
    async with stage(tmp_path, script) as (remit, server):
        for task in ("Take it.", "Refuse it."):
            result = await remit.delegate("cool", parameters={"task": task})
            assert result.ok, result
        assert (await asked(remit)).ok
    assert [request.body.get("temperature") for request in server.requests] == [0.2, 0.2, None, None]


async def test_results_read_gives_what_the_caller_delegated_and_nothing_of_anybody_else(tmp_path: Path) -> None:
    """Also not of its own tree: what its caller and its siblings were given is theirs."""
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
            return up(1)
        ids["own"] = json.loads(request.results[0])["taskId"]
        return read("own", "sibling", "stranger") if len(request.results) == 1 else DONE

    def script(request: ModelRequest) -> Any:
        return spy(request) if "Spy on it." in request.text else thinker(request)

    async with ScriptedModels(script) as server:
        settings = settings_for(server, {"tools": ["vault", "spy"]})
        settings["agents"]["spy"] = {"kind": "model", "tools": ["count"], "timeout": 20}
        async with Remit.open(tmp_path, agents=[*AGENTS, vault], settings=settings) as remit:
            ids["stranger"] = (await remit.delegate("vault")).session_id
            assert (await asked(remit)).ok
    seen = next(shown(one) for one in server.requests if "Spy on it." in one.text and len(one.results) == 4)
    assert '"text":"2"' in seen[0]
    assert all("POLICY_DENIED" in one and "a secret" not in one for one in seen[1:])
    assert any('"text":"a secret"' in text for one in server.requests for text in one.results)


async def test_what_was_left_out_is_read_on_range_by_range_to_the_last_character(tmp_path: Path) -> None:
    """By what each range says itself, whatever it asked for."""
    read: list[str] = []

    def script(request: ModelRequest) -> Any:
        if not request.results:
            return Call("delegate", target="count", operation="long", parameters={})
        last = json.loads(request.results[-1])
        if "readOn" in last:
            on = last["readOn"]
            read.append(last["data"][: on["parameters"]["offset"]])
            return Call("delegate", **{**on, "parameters": {**on["parameters"], "limit": 60_000}})
        read.append(last["data"]["text"])
        parameters = {"taskId": last["taskId"], "offset": last["data"]["next"]}
        return DONE if last["data"]["next"] is None else Call("delegate", target="results", operation="read", parameters=parameters)

    async with stage(tmp_path, script) as (remit, server):
        assert (await asked(remit)).ok
    assert "".join(read) == "".join(f"{number:06d}\n" for number in range(20_000))
    assert all(len(text) <= 16_000 for request in server.requests for text in request.results)
