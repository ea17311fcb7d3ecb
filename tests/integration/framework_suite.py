"""Checks for every agent framework: the delegate tool in a framework agent, alone and inside an `@agent` function.

`CHECKS` run on one `Harness` of the framework, one after another. Used by `test_frameworks`.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from framework_harness import Harness, delegate, running

from remit import Toolbox
from remit.testing import Call, ModelRequest, Say, Silence
from support.pace import allowed

Check = Callable[[Harness], Awaitable[None]]


def targets(request: ModelRequest) -> list[str]:
    """The targets offered to the model."""
    offered: list[str] = request.tools[0].schema["properties"]["target"]["enum"]
    return offered


# ---- the delegate tool in a framework agent


async def agent_delegates_and_gets_the_result_as_json(harness: Harness) -> None:
    requests = harness.play([delegate("echo", text="hi"), Say("Done.")])
    assert await harness.run(harness.guest, "Say hi.") == "Done."
    (result,) = (json.loads(text) for text in requests[1].results)
    assert (result["success"], result["data"]) == (True, "echo hi")
    assert len(requests[0].tools) == 1
    assert {"echo", "guest", "worker"} <= set(targets(requests[0]))


async def invalid_calls_are_answered_with_advice_and_never_end_the_run(harness: Harness) -> None:
    unknown = [delegate("echo", txt="x"), delegate("echo", text="x", wait="long"), Call("delegate", nonsense=1)]
    wrong = [delegate("eco", text="x"), delegate("echo"), *unknown, Call("delegate", self=1, target="echo")]
    requests = harness.play([*wrong, delegate("echo", text="right"), Say("Done.")])
    assert await harness.run(harness.guest, "Go.") == "Done."
    reported = [request.results[-1] for request in requests[1:]]
    assert "INVALID_TARGET" in reported[0]
    assert "Did you mean echo?" in reported[0]
    assert "it is required" in reported[1]
    assert "Unknown argument 'self'" in reported[5]
    assert ["INVALID_" in text for text in reported] == [True] * 6 + [False]
    assert json.loads(reported[6])["data"] == "echo right"


async def twenty_calls_of_one_turn_run_concurrently_and_keep_their_order(harness: Harness) -> None:
    requests = harness.play([[delegate("echo", text=str(number), wait=0.1 - number / 250) for number in range(20)], Say("Done.")])
    task = asyncio.create_task(harness.run(harness.guest, "All."))
    await running.until(20)
    await task
    assert [json.loads(text)["data"] for text in requests[1].results] == [f"echo {number}" for number in range(20)]


async def cancelled_run_cancels_its_delegations(harness: Harness) -> None:
    harness.play([delegate("echo", text="long", wait=60), Say("Never.")])
    task = asyncio.create_task(harness.run(harness.guest, "Go."))
    await running.until(1)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    (newest, *_) = await harness.remit.history(agent="echo")
    finished = await harness.remit.result(newest.session_id, wait_seconds=5)
    assert finished is not None
    assert finished.stop_reason == "cancelled"


async def large_result_is_shortened_with_a_reference(harness: Harness) -> None:
    requests = harness.play([delegate("echo", text="x" * 50_000), Say("Done.")])
    await harness.run(harness.agent(harness.tool(characters=2_000)), "Go.")
    (text,) = requests[1].results
    assert len(text) <= 2_000
    result = json.loads(text)
    assert 48_005 < result["leftOut"]["data"] < 50_005
    assert result["readOn"]["parameters"]["taskId"] == result["taskId"]
    whole = await harness.remit.result(result["taskId"])
    assert whole is not None
    assert whole.data == "echo " + "x" * 50_000


# ---- a framework agent inside an `@agent` function


async def delegation_inside_an_agent_is_a_child(harness: Harness) -> None:
    harness.play([delegate("echo", text="hi"), Say("It said hi.")])
    done = await harness.remit.delegate("guest", task="Say hi.")
    assert (done.status, done.data) == ("completed", "It said hi.")
    root, child = await harness.remit.tree(done.session_id)
    assert (root.agent, child.agent, child.parent_id) == ("guest", "echo", root.session_id)


async def silent_model_ends_at_the_deadline(harness: Harness) -> None:
    """No framework code keeps running."""
    harness.play([Silence()])
    before = asyncio.all_tasks()
    late = await harness.remit.delegate("guest", task="Wait.", timeout=0.6)
    assert (late.status, late.errors[0].code) == ("partial", "TIMEOUT")
    assert late.metadata.duration_seconds < allowed(3)
    assert [task for task in asyncio.all_tasks() - before if _is_of(harness.package, task)] == []


def _is_of(package: str, task: asyncio.Task[Any]) -> bool:
    code = getattr(task.get_coro(), "cr_code", None)
    return code is not None and f"/site-packages/{package}/" in Path(code.co_filename).as_posix()


async def cancelling_the_agent_cancels_the_whole_tree(harness: Harness) -> None:
    requests = harness.play([delegate("echo", text="deep", wait=60), Say("Never.")])
    handle = await harness.remit.start("guest", task="Go.")
    await running.until(1)
    await handle.cancel("enough")
    assert [record.state for record in await harness.remit.tree(handle.session_id)] == ["cancelled", "cancelled"]
    assert running.names == set()
    assert len(requests) == 1


async def sync_tool_that_delegates_on_a_thread_makes_a_child(harness: Harness) -> None:
    """The context is carried across threads: limits cannot be bypassed."""
    box = Toolbox(harness.remit)

    def through_a_thread() -> str:
        """Delegates."""
        return box.answer_blocking({"target": "echo", "parameters": {"text": "deep"}}).text

    harness.play([Call("through_a_thread"), Say("Done.")])
    harness.register("threaded", harness.agent(harness.own_tool(through_a_thread)))
    done = await harness.remit.delegate("threaded", task="Go.")
    assert [record.agent for record in await harness.remit.tree(done.session_id)] == ["threaded", "echo"]


CHECKS: tuple[Check, ...] = (
    agent_delegates_and_gets_the_result_as_json,
    invalid_calls_are_answered_with_advice_and_never_end_the_run,
    twenty_calls_of_one_turn_run_concurrently_and_keep_their_order,
    cancelled_run_cancels_its_delegations,
    large_result_is_shortened_with_a_reference,
    delegation_inside_an_agent_is_a_child,
    silent_model_ends_at_the_deadline,
    cancelling_the_agent_cancels_the_whole_tree,
    sync_tool_that_delegates_on_a_thread_makes_a_child,
)
