"""remit inside of pydantic-ai, and agents of pydantic-ai inside of remit: against the scripted model server."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from framework_stage import Endless, delegate, echo, present
from openai import AsyncOpenAI, DefaultAsyncHttpxClient
from pydantic import BaseModel
from pydantic_ai import Agent, ModelRetry, RunContext, UsageLimits
from pydantic_ai.messages import ToolReturnPart
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

from remit import Context, Limits, Remit, agent
from remit.agents.pydantic_ai import pydantic_ai_agent
from remit.core.events import EventKind
from remit.testing.models import Call, Drip, Fail, ModelRequest, Reply, Say, Script, ScriptedModels, Silence, Turn, valid_return
from remit.tool.pydantic_ai import delegate_toolset


def model_at(models: ScriptedModels | Endless) -> OpenAIChatModel:
    """Over plain HTTP: no list of authorities is loaded, which takes long."""
    client = AsyncOpenAI(base_url=models.openai_url, api_key="none", max_retries=0, http_client=DefaultAsyncHttpxClient(verify=False))
    return OpenAIChatModel("scripted", provider=OpenAIProvider(openai_client=client))


class Played:
    """A scripted model, a project, and an agent of pydantic-ai whose only tool is delegate; under its name also an agent of remit's."""

    def __init__(self, script: Script, folder: Path, **declared: Any) -> None:
        self.models = ScriptedModels(script)
        self._folder, self._declared = folder, declared

    async def __aenter__(self) -> "Played":
        await self.models.__aenter__()
        output = self._declared.pop("output_type", str)
        self.agent: Agent[Any, Any] = Agent(model_at(self.models), name="guest", output_type=output)
        self.remit = await Remit.open(
            self._folder,
            agents=[echo, pydantic_ai_agent("guest", self.agent, description="A guest.", timeout=20, **self._declared)],
        ).__aenter__()
        self.toolset = delegate_toolset(self.remit)

        @self.agent.toolset
        def with_delegate(ctx: Any) -> Any:
            return self.toolset

        return self

    async def __aexit__(self, *gone: Any) -> None:
        await self.remit.close()
        await self.models.__aexit__(*gone)


def shown(request: ModelRequest) -> list[dict[str, Any]]:
    return [json.loads(text) for text in request.results]


# ---- the delegate tool in pydantic-ai


async def test_an_agent_of_pydantic_ai_delegates_and_is_told_the_result_as_json(tmp_path: Path) -> None:
    async with Played([delegate("echo", text="hi"), Say("Done.")], tmp_path) as played:
        done = await played.agent.run("Say hi.")
        assert done.output == "Done."
        (result,) = shown(played.models.requests[1])
        assert (result["success"], result["data"]) == (True, "echo hi")
        (tool,) = played.models.requests[0].tools
        assert {"echo", "guest", "worker"} <= set(tool.schema["properties"]["target"]["enum"])
        (part,) = [part for message in done.all_messages() for part in message.parts if isinstance(part, ToolReturnPart)]
        assert part.metadata["taskId"] == result["taskId"]


async def test_an_agent_that_is_registered_while_it_runs_stands_in_the_next_request(tmp_path: Path) -> None:
    """S5.1: a new agent appears by being registered."""

    @agent("late")
    async def late() -> None: ...

    @agent("registrar")
    async def registrar() -> None:
        played.remit.register(late)

    async with Played([delegate("registrar"), Say("Done.")], tmp_path) as played:
        played.remit.register(registrar)
        await played.agent.run("Go.")
        before, after = (request.tools[0].schema["properties"]["target"]["enum"] for request in played.models.requests)
        assert "late" in after
        assert "late" not in before


async def test_faults_are_handed_back_with_what_is_allowed_and_never_end_the_run(tmp_path: Path) -> None:
    """S5.3. Its one retry is used up by the first fault; the others are told as failures."""
    wrong = [delegate("eco", text="x"), delegate("echo", txt="x"), delegate("echo", text="x", wait="long"), Call("delegate", nonsense=1)]
    async with Played([*wrong, delegate("echo", text="right"), Say("Done.")], tmp_path) as played:
        assert (await played.agent.run("Go.")).output == "Done."
        told = [request.results[-1] for request in played.models.requests[1:]]
        assert "INVALID_TARGET" in told[0]
        assert "Did you mean echo?" in told[0]
        assert all("INVALID_" in text for text in told[:4])
        assert json.loads(told[4])["data"] == "echo right"


async def test_what_fails_is_told_the_model_as_a_failure_with_its_reason(tmp_path: Path) -> None:
    @agent("broken")
    async def broken() -> None:
        raise RuntimeError("the sky fell")

    async with Played([delegate("broken"), Say("A pity.")], tmp_path) as played:
        played.remit.register(broken)
        done = await played.agent.run("Go.")
        assert done.output == "A pity."
        (part,) = [part for message in done.all_messages() for part in message.parts if isinstance(part, ToolReturnPart)]
        assert part.outcome == "failed"
        assert "the sky fell" in str(part.content)


async def test_twenty_calls_in_one_turn_run_at_once_and_their_results_come_in_call_order(tmp_path: Path) -> None:
    """S5.8."""
    calls = [delegate("echo", text=str(number), wait=0.1 - number / 250) for number in range(20)]
    async with Played([calls, Say("Done.")], tmp_path) as played:
        task = asyncio.create_task(played.agent.run("All."))
        await present.until(20)
        await task
        assert [result["data"] for result in shown(played.models.requests[1])] == [f"echo {number}" for number in range(20)]


async def test_a_cancelled_run_cancels_what_it_delegated(tmp_path: Path) -> None:
    async with Played([delegate("echo", text="long", wait=60), Say("Never.")], tmp_path) as played:
        task = asyncio.create_task(played.agent.run("Go."))
        await present.until(1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        (record,) = await played.remit.history(agent="echo")
        ended = await played.remit.result(record.session_id, wait_seconds=5)
        assert ended is not None
        assert ended.stop_reason == "cancelled"
        assert present.names == set()


async def test_only_agents_that_are_offered_can_be_reached(tmp_path: Path) -> None:
    async with Played([delegate("worker", path="x"), Say("Done.")], tmp_path) as played:
        played.toolset = delegate_toolset(played.remit, lambda spec: spec.name == "echo")
        await played.agent.run("Go.")
        assert played.models.requests[0].tools[0].schema["properties"]["target"]["enum"] == ["echo"]
        assert "INVALID_TARGET" in played.models.requests[1].results[0]


async def test_a_large_result_is_shortened_with_a_reference_to_the_whole(tmp_path: Path) -> None:
    async with Played([delegate("echo", text="x" * 50_000), Say("Done.")], tmp_path) as played:
        played.toolset = delegate_toolset(played.remit, characters=2_000)
        await played.agent.run("Go.")
        (text,) = played.models.requests[1].results
        assert len(text) <= 2_000
        result = json.loads(text)
        assert 48_005 < result["leftOut"]["data"] < 50_005
        assert result["readOn"]["parameters"]["taskId"] == result["taskId"]
        whole = await played.remit.result(result["taskId"])
        assert whole is not None
        assert whole.data == "echo " + "x" * 50_000


# ---- agents of pydantic-ai as agents of remit's


async def test_an_agent_of_pydantic_ai_is_an_agent_of_remits(tmp_path: Path) -> None:
    """What it delegates is its child; its words are streamed, its tokens counted."""
    async with Played([[Say("I ask."), delegate("echo", text="hi")], Say("It said hi.").using(300, 30)], tmp_path) as played:
        handle = await played.remit.start("guest", task="Say hi.", tone="kind")
        done = await handle.result()
        assert (done.status, done.data) == ("completed", "It said hi.")
        assert played.models.requests[0].text == "Say hi.\n\nGiven with it:\n- tone: kind"
        root, child = await played.remit.tree(done.session_id)
        assert (root.agent, child.agent, child.parent_id) == ("guest", "echo", root.session_id)
        events = await played.remit.events(done.session_id)
        assert "".join(event.body["chunk"]["text"] for event in events if event.kind is EventKind.DATA) == "I ask.It said hi."
        assert [event.body["message"] for event in events if event.kind is EventKind.PROGRESS] == ["It calls delegate."]
        assert [event.body["tokens"] for event in events if event.kind is EventKind.SPENT] == [120, 450]


class Verdict(BaseModel):
    good: bool
    why: str


async def test_a_structured_output_is_the_data_of_the_return(tmp_path: Path) -> None:
    script = [Call("final_result", good=True, why="It is short.")]
    async with Played(script, tmp_path, output_type=Verdict) as played:
        done = await played.remit.delegate("guest", task="Judge.")
        assert done.data == {"good": True, "why": "It is short."}


@pytest.mark.parametrize("turn", [Silence(), Drip("Slowly, very slowly.", seconds=60)])
async def test_a_model_that_does_not_answer_is_left_at_the_deadline(tmp_path: Path, turn: Any) -> None:
    """S2.5."""
    async with Played([turn], tmp_path) as played:
        late = await played.remit.delegate("guest", task="Wait.", timeout=0.6)
        assert (late.status, late.errors[0].code) == ("partial", "TIMEOUT")
        assert late.metadata.duration_seconds < 3
        events = await played.remit.events(late.session_id)
        said = [event.body["chunk"]["text"] for event in events if event.kind is EventKind.DATA]
        assert "".join(said) == ("" if isinstance(turn, Silence) else "Slowly, ")
        spent = [event.body["tokens"] for event in events if event.kind is EventKind.SPENT]
        assert len(spent) == len(said)  # what came of a reply was paid for


async def test_cancelling_it_cancels_the_whole_tree(tmp_path: Path) -> None:
    async with Played([delegate("echo", text="deep", wait=60), Say("Never.")], tmp_path) as played:
        handle = await played.remit.start("guest", task="Go.")
        await present.until(1)
        await handle.cancel("enough")
        assert [record.state for record in await played.remit.tree(handle.session_id)] == ["cancelled", "cancelled"]
        assert present.names == set()


async def test_a_budget_of_tokens_stops_it_in_the_middle_of_its_run(tmp_path: Path) -> None:
    """S8: it would go on for ever."""
    async with Played(lambda request: delegate("echo", text=str(request.turn)), tmp_path) as played:
        done = await played.remit.delegate("guest", task="Go on.", budget=Limits(tokens=300))
        assert (done.status, done.stop_reason, done.errors[0].code) == ("partial", "budget", "BUDGET_EXCEEDED")
        assert len(played.models.requests) == 3


async def test_a_reply_that_never_ends_passes_a_budget_of_tokens_too(tmp_path: Path) -> None:
    """S8: it is told what it used when it is whole."""
    async with Endless() as models:
        talker: Agent[None, str] = Agent(model_at(models))
        async with Remit.open(tmp_path, agents=[pydantic_ai_agent("talker", talker, timeout=20)]) as remit:
            done = await remit.delegate("talker", task="Talk.", budget=Limits(tokens=100))
            assert (done.status, done.stop_reason) == ("partial", "budget")
            assert done.metadata.duration_seconds < 10


async def test_agents_that_it_runs_itself_are_counted_while_they_run(tmp_path: Path) -> None:
    """S8. The total of the outer run is shared, as pydantic-ai has it."""
    script: Script = lambda request: Call("ask_inner") if request.text == "Go." else Say("Inner.").using(200, 50)  # noqa: E731
    async with Played(script, tmp_path) as played:
        inner: Agent[None, str] = Agent(model_at(played.models))

        @played.agent.tool
        async def ask_inner(ctx: RunContext[Any]) -> str:
            while True:
                await inner.run("Inner?", usage=ctx.usage)
                await asyncio.sleep(0.05)

        done = await played.remit.delegate("guest", task="Go.", budget=Limits(tokens=1000))
        assert (done.status, done.stop_reason) == ("partial", "budget")
        spent = [event.body["tokens"] for event in await played.remit.events(done.session_id) if event.kind is EventKind.SPENT]
        assert spent[0] == 120
        assert (spent[-1] - 120) % 250 == 0
        assert done.metadata.duration_seconds < 10


@pytest.mark.parametrize("is_given", [True, False])
async def test_money_is_counted_by_the_projects_own_prices(tmp_path: Path, is_given: bool) -> None:
    """From its file, and as they were given when it was opened."""
    if not is_given:
        (tmp_path / "remit.toml").write_text('[prices."openai:scripted"]\ninput = 1000.0\noutput = 5000.0\n')
    given = {"prices": {"openai:scripted": {"input": 1000.0, "output": 5000.0}}} if is_given else {}
    async with ScriptedModels([Say("Dear.")]) as models:
        dear = pydantic_ai_agent("dear", Agent(model_at(models)), timeout=20)
        async with Remit.open(tmp_path, agents=[dear], settings=given) as remit:
            done = await remit.delegate("dear", task="Go.")
            spent = [event.body for event in await remit.events(done.session_id) if event.kind is EventKind.SPENT]
            assert spent == [{"tokens": 120, "cost": pytest.approx(0.2)}]


async def test_an_agent_that_delegates_to_itself_is_refused_and_told_so(tmp_path: Path) -> None:
    """S1.4."""
    async with Played([delegate("guest", task="You do it."), Say("Then I do it.")], tmp_path) as played:
        done = await played.remit.delegate("guest", task="Do it.")
        assert done.data == "Then I do it."
        assert "CYCLE_DETECTED" in played.models.requests[1].results[0]


async def test_its_own_limit_of_requests_gives_a_partial_return(tmp_path: Path) -> None:
    script: Script = lambda request: [Say("So far, so good."), delegate("echo", text="again")]  # noqa: E731
    async with Played(script, tmp_path, usage_limits=UsageLimits(request_limit=2)) as played:
        done = await played.remit.delegate("guest", task="Go on.")
        assert (done.status, done.data) == ("partial", {"text": "So far, so good.So far, so good."})
        assert "request_limit" in done.errors[0].message


async def test_a_provider_that_fails_is_told_in_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And never with a key that the server says again."""
    monkeypatch.setenv("SOME_API_KEY", "opensesame-and-shut")
    async with Played([Fail(401, "wrong key: opensesame-and-shut")], tmp_path) as played:
        done = await played.remit.delegate("guest", task="Go.")
        assert (done.status, done.errors[0].code, done.stop_reason) == ("failed", "AGENT_UNAVAILABLE", "unavailable")
        assert "wrong key: " in done.errors[0].message
        assert "opensesame" not in str(done.to_dict())


async def test_what_its_tools_raise_is_its_error(tmp_path: Path) -> None:
    async with Played([Call("shaky"), Call("shaky"), Say("Never.")], tmp_path) as played:

        @played.agent.tool_plain
        def shaky() -> str:
            raise ModelRetry("not yet")

        done = await played.remit.delegate("guest", task="Go.")
        assert done.status == "failed"
        assert "shaky" in done.errors[0].message


async def test_asked_for_a_return_it_is_told_how_and_repaired_once_in_the_same_conversation(tmp_path: Path) -> None:
    """S3.7, S3.8."""
    script = [Say("All is well."), Reply(lambda request: Say(valid_return(request, data={"n": 1})))]
    async with Played(script, tmp_path, answers="return") as played:
        done = await played.remit.delegate("guest", task="Look.")
        assert (done.status, done.data) == ("completed", {"n": 1})
        second = played.models.requests[1]
        assert [message.text for message in second.messages if message.role == "assistant"] == ["All is well."]
        assert "could not be accepted" in second.asked


async def test_at_the_soft_deadline_it_is_told_to_hand_in(tmp_path: Path) -> None:
    """S2.4: a tool of its own waited for it."""

    def script(request: ModelRequest) -> Turn:
        return Say("What I have.") if request.results else Call("wait")

    async with Played(script, tmp_path, deps_of=lambda ctx: ctx) as played:

        @played.agent.tool
        async def wait(ctx: RunContext[Context]) -> str:
            await ctx.deps.wait_hand_in()
            return "late"

        await played.remit.delegate("guest", task="Go on.", timeout=2)
        assert "Time is nearly up" in played.models.requests[1].asked


async def test_twenty_runs_of_it_at_once_keep_apart(tmp_path: Path) -> None:
    async with Played(lambda request: Say(f"You said {request.text}."), tmp_path) as played:
        done = await asyncio.gather(*(played.remit.delegate("guest", task=str(number)) for number in range(20)))
        assert [one.data for one in done] == [f"You said {number}." for number in range(20)]


async def test_it_can_stand_in_a_file_of_the_projects_agents(tmp_path: Path) -> None:
    folder = tmp_path / ".remit" / "agents"
    folder.mkdir(parents=True)
    (folder / "mine.py").write_text(
        "from pydantic_ai import Agent\nfrom pydantic_ai.models.test import TestModel\n"
        "from remit.agents.pydantic_ai import pydantic_ai_agent\n"
        "mine = pydantic_ai_agent('mine', Agent(TestModel(custom_output_text='Mine.')), description='Says so.')\n"
    )
    async with Remit.open(tmp_path) as remit:
        assert remit.directory.problems == []
        assert (await remit.delegate("mine", task="Who?")).data == "Mine."
        (spec,) = [spec for spec in remit.directory.specs() if spec.name == "mine"]
        assert (spec.kind, spec.description, Path(spec.source.partition(":")[0]).name) == ("pydantic-ai", "Says so.", "mine.py")


@pytest.fixture(autouse=True)
async def _nothing_is_left() -> AsyncIterator[None]:
    yield
    assert present.names == set()
