"""What holds for every framework, both ways: the delegate tool in one of its agents, and one of its agents as an agent of remit's.

`CHECKS` are played on one `Stage` of the framework's, one after the other; what is particular to it stands in its own file. Used by the
tests `test_frameworks_*`.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from framework_stage import Endless, Stage, Verdict, delegate, present

from remit import Limits, agent
from remit.core.events import EventKind
from remit.runtime.tool.delegate_tool import Toolbox
from remit.testing import Call, Drip, Fail, ModelRequest, Reply, Say, Silence, Stray, valid_return
from support.pace import allowed

Check = Callable[[Stage], Awaitable[None]]


def targets(request: ModelRequest) -> list[str]:
    """The agents that the model was offered."""
    offered: list[str] = request.tools[0].schema["properties"]["target"]["enum"]
    return offered


# ---- the delegate tool in an agent of the framework's


async def it_delegates_and_is_told_the_result_as_json(stage: Stage) -> None:
    requests = stage.play([delegate("echo", text="hi"), Say("Done.")])
    assert await stage.run(stage.guest, "Say hi.") == "Done."
    (result,) = (json.loads(text) for text in requests[1].results)
    assert (result["success"], result["data"]) == (True, "echo hi")
    assert len(requests[0].tools) == 1
    assert {"echo", "guest", "worker"} <= set(targets(requests[0]))


async def faults_are_told_with_what_is_allowed_and_never_end_the_run(stage: Stage) -> None:
    unknown = [delegate("echo", txt="x"), delegate("echo", text="x", wait="long"), Call("delegate", nonsense=1)]
    wrong = [delegate("eco", text="x"), delegate("echo"), *unknown, Call("delegate", self=1, target="echo")]
    requests = stage.play([*wrong, delegate("echo", text="right"), Say("Done.")])
    assert await stage.run(stage.guest, "Go.") == "Done."
    told = [request.results[-1] for request in requests[1:]]
    assert "INVALID_TARGET" in told[0]
    assert "Did you mean echo?" in told[0]
    assert "it is required" in told[1]
    assert "There is no argument 'self'" in told[5]
    assert ["INVALID_" in text for text in told] == [True] * 6 + [False]
    assert json.loads(told[6])["data"] == "echo right"


async def an_agent_that_is_registered_while_it_runs_stands_in_the_next_request(stage: Stage) -> None:
    """A new agent appears by being registered."""

    @agent("late")
    async def late() -> str:
        return "better"

    @agent("registrar")
    async def registrar() -> None:
        stage.remit.register(late)

    stage.remit.register(registrar)
    requests = stage.play([delegate("registrar"), delegate("late"), Say("Done.")])
    await stage.run(stage.guest, "Go.")
    assert ["late" in targets(request) for request in requests] == [False, True, True]
    assert ["late(" in str(request.body["tools"]) for request in requests] == [False, True, True]
    assert json.loads(requests[2].results[-1])["data"] == "better"


async def what_fails_is_told_with_its_reason(stage: Stage) -> None:
    @agent("broken")
    async def broken() -> None:
        raise RuntimeError("the sky fell")

    stage.remit.register(broken)
    requests = stage.play([delegate("broken"), Say("A pity.")])
    assert await stage.run(stage.guest, "Go.") == "A pity."
    assert "the sky fell" in requests[1].results[0]


async def twenty_calls_in_one_turn_run_at_once_and_their_results_come_in_call_order(stage: Stage) -> None:
    requests = stage.play([[delegate("echo", text=str(number), wait=0.1 - number / 250) for number in range(20)], Say("Done.")])
    task = asyncio.create_task(stage.run(stage.guest, "All."))
    await present.until(20)
    await task
    assert [json.loads(text)["data"] for text in requests[1].results] == [f"echo {number}" for number in range(20)]


async def a_cancelled_run_cancels_what_it_delegated(stage: Stage) -> None:
    stage.play([delegate("echo", text="long", wait=60), Say("Never.")])
    task = asyncio.create_task(stage.run(stage.guest, "Go."))
    await present.until(1)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    (newest, *_) = await stage.remit.history(agent="echo")
    ended = await stage.remit.result(newest.session_id, wait_seconds=5)
    assert ended is not None
    assert ended.stop_reason == "cancelled"


async def only_agents_that_are_offered_can_be_reached(stage: Stage) -> None:
    requests = stage.play([delegate("worker", path="x"), Say("Done.")])
    await stage.run(stage.agent(stage.tool(lambda spec: spec.name == "echo")), "Go.")
    assert targets(requests[0]) == ["echo"]
    assert "INVALID_TARGET" in requests[1].results[0]


async def a_large_result_is_shortened_with_a_reference_to_the_whole(stage: Stage) -> None:
    requests = stage.play([delegate("echo", text="x" * 50_000), Say("Done.")])
    await stage.run(stage.agent(stage.tool(characters=2_000)), "Go.")
    (text,) = requests[1].results
    assert len(text) <= 2_000
    result = json.loads(text)
    assert 48_005 < result["leftOut"]["data"] < 50_005
    assert result["readOn"]["parameters"]["taskId"] == result["taskId"]
    whole = await stage.remit.result(result["taskId"])
    assert whole is not None
    assert whole.data == "echo " + "x" * 50_000


# ---- an agent of the framework's as an agent of remit's


async def it_is_an_agent_of_remits(stage: Stage) -> None:
    """What it delegates is its child; its words are streamed, its tokens counted."""
    requests = stage.play([[Say("I ask."), delegate("echo", text="hi")], Say("It said hi.").using(300, 30)])
    done = await stage.remit.delegate("guest", task="Say hi.", tone="kind")
    assert (done.status, done.data) == ("completed", "It said hi.")
    assert requests[0].text == "Say hi.\n\nGiven with it:\n- tone: kind"
    root, child = await stage.remit.tree(done.session_id)
    assert (root.agent, child.agent, child.parent_id) == ("guest", "echo", root.session_id)
    assert "".join(await stage.heard(done, EventKind.DATA)) == "I ask.It said hi."
    assert await stage.heard(done, EventKind.PROGRESS) == ["It calls delegate."]
    assert await stage.heard(done, EventKind.SPENT) == [120, 450]


async def a_structured_output_is_the_data_of_the_return(stage: Stage) -> None:
    stage.play([stage.verdict])
    stage.admit("judge", stage.agent(output=Verdict))
    assert (await stage.remit.delegate("judge", task="Judge.")).data == {"good": True, "why": "It is short."}


async def a_model_that_does_not_answer_is_left_at_the_deadline(stage: Stage) -> None:
    """What came of a reply is kept and was paid for, and nothing of the framework's goes on."""
    stage.play({"Wait.": [Silence()], "Talk.": [Drip("Slowly, very slowly.", seconds=60)]})
    before = asyncio.all_tasks()
    both = await asyncio.gather(*(stage.remit.delegate("guest", task=task, timeout=0.6) for task in ("Wait.", "Talk.")))
    for late, said in zip(both, ([], ["Slowly, "]), strict=True):
        assert (late.status, late.errors[0].code) == ("partial", "TIMEOUT")
        assert late.metadata.duration_seconds < allowed(3)
        assert await stage.heard(late, EventKind.DATA) == said
        assert len(await stage.heard(late, EventKind.SPENT)) == len(said)
    assert [task for task in asyncio.all_tasks() - before if _is_of(stage.package, task)] == []


def _is_of(package: str, task: asyncio.Task[Any]) -> bool:
    code = getattr(task.get_coro(), "cr_code", None)
    return code is not None and f"/site-packages/{package}/" in Path(code.co_filename).as_posix()


async def cancelling_it_cancels_the_whole_tree(stage: Stage) -> None:
    requests = stage.play([delegate("echo", text="deep", wait=60), Say("Never.")])
    handle = await stage.remit.start("guest", task="Go.")
    await present.until(1)
    await handle.cancel("enough")
    assert [record.state for record in await stage.remit.tree(handle.session_id)] == ["cancelled", "cancelled"]
    assert present.names == set()
    assert len(requests) == 1


async def a_budget_of_tokens_stops_it_in_the_middle_of_its_run(stage: Stage) -> None:
    """It would go on for ever."""
    requests = stage.play(lambda request: delegate("echo", text=str(request.turn)))
    done = await stage.remit.delegate("guest", task="Go on.", budget=Limits(tokens=300))
    assert (done.status, done.stop_reason, done.errors[0].code) == ("partial", "budget", "BUDGET_EXCEEDED")
    assert len(requests) == 3


async def a_reply_that_never_ends_passes_a_budget_of_tokens_too(stage: Stage) -> None:
    """It is told what it used when it is whole."""
    async with Endless() as endless:
        stage.admit("talker", stage.agent(at=endless))
        done = await stage.remit.delegate("talker", task="Talk.", budget=Limits(tokens=100))
        assert (done.status, done.stop_reason) == ("partial", "budget")
        assert done.metadata.duration_seconds < allowed(10)


async def an_agent_that_delegates_to_itself_is_refused_and_told_so(stage: Stage) -> None:
    requests = stage.play([delegate("guest", task="You do it."), Say("Then I do it.")])
    assert (await stage.remit.delegate("guest", task="Do it.")).data == "Then I do it."
    assert "CYCLE_DETECTED" in requests[1].results[0]


async def a_limit_of_the_frameworks_own_gives_a_partial_return(stage: Stage) -> None:
    stage.play(lambda request: [Say("So far. "), delegate("echo", text="again")])
    stage.admit("bounded", stage.agent(stage.tool()), **stage.two_turns)
    done = await stage.remit.delegate("bounded", task="Go on.")
    assert (done.status, done.data) == ("partial", {"text": "So far. So far."})
    assert stage.too_many in done.errors[0].message


async def a_tool_that_does_not_exist_is_told_and_the_run_goes_on(stage: Stage) -> None:
    requests = stage.play([Stray("bash", command="ls"), Say("Then not.")])
    assert (await stage.remit.delegate("guest", task="Go.")).data == "Then not."
    assert "bash" in requests[1].results[0]


async def a_provider_that_fails_is_told_in_words(stage: Stage) -> None:
    """And never with a key that the server says again."""
    stage.play({"Go.": [Fail(401)], "Again.": [Fail(401, "wrong key: opensesame-and-shut")]})
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("SOME_API_KEY", "opensesame-and-shut")
        for task, words in (("Go.", "invalid x-api-key"), ("Again.", "wrong key: ")):
            done = await stage.remit.delegate("guest", task=task)
            assert (done.status, done.errors[0].code, done.stop_reason) == ("failed", "AGENT_UNAVAILABLE", "unavailable")
            assert words in done.errors[0].message
            assert "opensesame" not in str(done.to_dict())


async def asked_for_a_return_it_is_told_how_and_repaired_once_in_the_same_conversation(stage: Stage) -> None:
    requests = stage.play([Say("All is well."), Reply(lambda request: Say(valid_return(request, data={"n": 1})))])
    stage.admit("clerk", stage.agent(stage.tool()), answers="return")
    done = await stage.remit.delegate("clerk", task="Look.")
    assert (done.status, done.data) == ("completed", {"n": 1})
    assert [message.text for message in requests[1].messages if message.role == "assistant"] == ["All is well."]
    assert "could not be accepted" in requests[1].asked


async def a_sync_tool_of_its_own_that_delegates_on_a_thread_makes_a_child(stage: Stage) -> None:
    """The context travels with the thread: limits cannot be stepped around."""
    box = Toolbox(stage.remit)

    def through_a_thread() -> str:
        """Delegates."""
        return box.call_blocking("delegate", {"target": "echo", "parameters": {"text": "deep"}})

    stage.play([Call("through_a_thread"), Say("Done.")])
    stage.admit("threaded", stage.agent(stage.own_tool(through_a_thread)))
    done = await stage.remit.delegate("threaded", task="Go.")
    assert [record.agent for record in await stage.remit.tree(done.session_id)] == ["threaded", "echo"]


async def twenty_runs_of_it_at_once_keep_apart(stage: Stage) -> None:
    stage.play(lambda request: Say(f"You said {request.text}."))
    done = await asyncio.gather(*(stage.remit.delegate("guest", task=str(number)) for number in range(20)))
    assert [one.data for one in done] == [f"You said {number}." for number in range(20)]


CHECKS: tuple[Check, ...] = (
    it_delegates_and_is_told_the_result_as_json,
    faults_are_told_with_what_is_allowed_and_never_end_the_run,
    an_agent_that_is_registered_while_it_runs_stands_in_the_next_request,
    what_fails_is_told_with_its_reason,
    twenty_calls_in_one_turn_run_at_once_and_their_results_come_in_call_order,
    a_cancelled_run_cancels_what_it_delegated,
    only_agents_that_are_offered_can_be_reached,
    a_large_result_is_shortened_with_a_reference_to_the_whole,
    it_is_an_agent_of_remits,
    a_structured_output_is_the_data_of_the_return,
    a_model_that_does_not_answer_is_left_at_the_deadline,
    cancelling_it_cancels_the_whole_tree,
    a_budget_of_tokens_stops_it_in_the_middle_of_its_run,
    a_reply_that_never_ends_passes_a_budget_of_tokens_too,
    an_agent_that_delegates_to_itself_is_refused_and_told_so,
    a_limit_of_the_frameworks_own_gives_a_partial_return,
    a_tool_that_does_not_exist_is_told_and_the_run_goes_on,
    a_provider_that_fails_is_told_in_words,
    asked_for_a_return_it_is_told_how_and_repaired_once_in_the_same_conversation,
    a_sync_tool_of_its_own_that_delegates_on_a_thread_makes_a_child,
    twenty_runs_of_it_at_once_keep_apart,
)


async def told_to_hand_in(stage: Stage, name: str) -> None:
    """`name` has a tool `wait`, which waits for the soft deadline. Not of LangGraph: a graph is told nothing between two steps."""
    for seconds in (0.8, 4, 16):  # on a busy machine the tenth that is left then may be too short to ask once more
        requests = stage.play(lambda request: Say("What I have.") if request.results else Call("wait"))
        await stage.remit.delegate(name, task="Go on.", timeout=seconds)
        if len(requests) > 1:
            break
    assert "Time is nearly up" in requests[1].asked


def every_check(checks: tuple[Check, ...] = CHECKS) -> pytest.MarkDecorator:
    """A test `(check, stage)` for each of them, named by it."""
    return pytest.mark.parametrize("check", checks, ids=lambda check: check.__name__)
