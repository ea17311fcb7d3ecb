"""What holds for every framework: the delegate tool in one of its agents, alone and inside an `@agent` function.

`CHECKS` are played on one `Stage` of the framework's, one after the other; what is particular to it stands in its own file. Used by the
tests `test_frameworks_*`.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from framework_harness import Stage, delegate, present

from remit import agent
from remit.runtime.tool.delegate_tool import Toolbox
from remit.testing import Call, ModelRequest, Say, Silence
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
    assert "Unknown argument 'self'" in told[5]
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


# ---- its agent, run by an `@agent` function


async def inside_an_agent_what_it_delegates_is_a_child(stage: Stage) -> None:
    stage.play([delegate("echo", text="hi"), Say("It said hi.")])
    done = await stage.remit.delegate("guest", task="Say hi.")
    assert (done.status, done.data) == ("completed", "It said hi.")
    root, child = await stage.remit.tree(done.session_id)
    assert (root.agent, child.agent, child.parent_id) == ("guest", "echo", root.session_id)


async def a_model_that_does_not_answer_is_left_at_the_deadline(stage: Stage) -> None:
    """Nothing of the framework's goes on."""
    stage.play([Silence()])
    before = asyncio.all_tasks()
    late = await stage.remit.delegate("guest", task="Wait.", timeout=0.6)
    assert (late.status, late.errors[0].code) == ("partial", "TIMEOUT")
    assert late.metadata.duration_seconds < allowed(3)
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


async def an_agent_that_delegates_to_itself_is_refused_and_told_so(stage: Stage) -> None:
    requests = stage.play([delegate("guest", task="You do it."), Say("Then I do it.")])
    assert (await stage.remit.delegate("guest", task="Do it.")).data == "Then I do it."
    assert "CYCLE_DETECTED" in requests[1].results[0]


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


CHECKS: tuple[Check, ...] = (
    it_delegates_and_is_told_the_result_as_json,
    faults_are_told_with_what_is_allowed_and_never_end_the_run,
    an_agent_that_is_registered_while_it_runs_stands_in_the_next_request,
    what_fails_is_told_with_its_reason,
    twenty_calls_in_one_turn_run_at_once_and_their_results_come_in_call_order,
    a_cancelled_run_cancels_what_it_delegated,
    only_agents_that_are_offered_can_be_reached,
    a_large_result_is_shortened_with_a_reference_to_the_whole,
    inside_an_agent_what_it_delegates_is_a_child,
    a_model_that_does_not_answer_is_left_at_the_deadline,
    cancelling_it_cancels_the_whole_tree,
    an_agent_that_delegates_to_itself_is_refused_and_told_so,
    a_sync_tool_of_its_own_that_delegates_on_a_thread_makes_a_child,
)


def every_check(checks: tuple[Check, ...] = CHECKS) -> pytest.MarkDecorator:
    """A test `(check, stage)` for each of them, named by it."""
    return pytest.mark.parametrize("check", checks, ids=lambda check: check.__name__)
