"""What every `Engine` must do, as checks.

    from support.engine_suite import ENGINE_CHECKS

    @pytest.mark.parametrize("check", ENGINE_CHECKS, ids=lambda check: check.__name__)
    async def test_engine(check, tmp_path):
        await check(open_remit, tmp_path)

`open_remit(root, agents, **settings)` opens a `Remit` on the engine under test (see `engine_samples.OpenRemit`). A check closes what
it opens and raises `AssertionError` when a promise is broken. Here: recording, streaming, keys, checkpoints, cancelling; the others
are in `engine_time_suite`, `engine_tree_suite` and `engine_features`.
"""

import asyncio
from pathlib import Path
from typing import Any

from remit import Context, EventKind, State, Status, StopReason, agent
from remit.testing import Scripted, answer, fail, hang, say, wait
from support import engine_features, engine_time_suite, engine_tree_suite
from support.engine_samples import DURABILITY_CHECKS, ENGINE_CHECKS, Check, OpenRemit, code_of, durable, promise, until

__all__ = ["DURABILITY_CHECKS", "ENGINE_CHECKS", "Check", "OpenRemit", "engine_features", "engine_time_suite", "engine_tree_suite"]


# ---- recorded and settled


@promise
async def a_delegation_is_recorded_before_it_runs(open_remit: OpenRemit, root: Path) -> None:
    seen: list[Any] = []

    @agent("looks-itself-up")
    async def looks_itself_up(ctx: Context) -> str:
        seen.append(await remit.describe(ctx.session_id))
        return "done"

    async with open_remit(root, [looks_itself_up]) as remit:
        result = await remit.delegate("looks-itself-up")
        assert result.ok
    assert seen[0].session_id == result.session_id
    assert seen[0].state is State.RUNNING
    assert seen[0].result is None


@promise
async def an_outcome_is_settled_before_its_caller_hears(open_remit: OpenRemit, root: Path) -> None:
    async with open_remit(root, [Scripted("worker", answer({"n": 1}), fail("no"))]) as remit:
        for expected in (State.COMPLETED, State.FAILED):
            result = await remit.delegate("worker")
            record = await remit.describe(result.session_id)
            assert record.state is expected
            assert record.result == result
            assert record.settled_at is not None


@promise
async def the_thirteen_steps_are_recorded_in_their_order(open_remit: OpenRemit, root: Path) -> None:
    async with open_remit(root, [Scripted("worker", say("a", "b"))]) as remit:
        result = await remit.delegate("worker")
        events = await remit.events(result.session_id)
    assert [event.number for event in events] == list(range(1, 16))
    assert [event.body["chunk"] for event in events if event.kind is EventKind.DATA] == ["a", "b"]
    steps = [event for event in events if event.kind is EventKind.STEP]
    assert len(steps) == 13
    assert [event.at for event in steps] == sorted(event.at for event in steps)


@promise
@durable
async def results_are_found_when_the_project_is_reopened(open_remit: OpenRemit, root: Path) -> None:
    worker = Scripted("worker", answer([1, 2]))
    async with open_remit(root, [worker]) as remit:
        result = await remit.delegate("worker", path="ä")
    async with open_remit(root, [worker]) as remit:
        record = await remit.describe(result.session_id)
        assert record.result == result
        assert record.parameters == {"path": "ä"}
        assert [r.session_id for r in await remit.history(agent="worker", status="completed")] == [result.session_id]


@promise
@durable
async def closing_stops_and_settles_what_still_runs(open_remit: OpenRemit, root: Path) -> None:
    worker = Scripted("worker", hang())
    async with open_remit(root, [worker]) as remit:
        handle = await remit.start("worker")
    async with open_remit(root, [worker]) as remit:
        record = await remit.describe(handle.session_id)
        assert record.state is State.CANCELLED
        assert remit.export_state()["active"] == 0


# ---- streaming


@promise
async def chunks_arrive_in_order_while_it_runs_and_the_last_is_the_return(open_remit: OpenRemit, root: Path) -> None:
    go = asyncio.Event()
    worker = Scripted("worker", say(1, {"two": 2}, then=wait(go, answer("done"))))
    async with open_remit(root, [worker]) as remit:
        handle = await remit.start("worker")
        events = []
        async for event in handle.stream():
            events.append(event)
            if len(events) == 2:
                go.set()  # before this the agent cannot have ended: the first two came while it ran
        assert [event.body["chunk"] for event in events[:2]] == [1, {"two": 2}]
        assert events[-1].kind is EventKind.COMPLETE
        assert events[-1].body["result"] == (await handle.result()).to_dict()
        assert [event.number for event in events] == sorted({event.number for event in events})


@promise
async def all_streams_receive_every_event(open_remit: OpenRemit, root: Path) -> None:
    go = asyncio.Event()
    async with open_remit(root, [Scripted("worker", wait(go, say(*range(50), then=fail("at last"))))]) as remit:
        handle = await remit.start("worker")

        async def heard() -> list[tuple[int, str]]:
            return [(event.number, event.kind) async for event in handle.stream()]

        listeners = [asyncio.create_task(heard()) for _ in range(3)]
        await asyncio.sleep(0)
        go.set()
        first, second, third = await asyncio.gather(*listeners)
        assert first == second == third == await heard()
        assert first[-1][1] == EventKind.ERROR
        assert len(first) == 51


@promise
async def a_message_to_a_live_delegation_is_an_event_and_to_an_ended_one_refused(open_remit: OpenRemit, root: Path) -> None:
    go = asyncio.Event()
    worker = Scripted("worker", wait(go, answer("done")))
    async with open_remit(root, [worker]) as remit:
        handle = await remit.start("worker")
        await worker.called.wait()
        here = remit.engine.message(handle.session_id, "Keep it short.")
        go.set()
        events = [event async for event in handle.stream()]
        assert [event.body["message"] for event in events if event.kind is EventKind.NOTICE] == ["Keep it short."] * here
        assert not remit.engine.message(handle.session_id, "Too late.")


# ---- idempotency keys


@promise
async def a_live_key_returns_the_running_delegation(open_remit: OpenRemit, root: Path) -> None:
    go = asyncio.Event()
    worker = Scripted("worker", wait(go, answer("once")))
    async with open_remit(root, [worker]) as remit:
        first = await remit.start("worker", n=1, key="k")
        second = asyncio.create_task(remit.delegate("worker", n=1, key="k"))
        await asyncio.sleep(0.05)
        go.set()
        assert (await second).session_id == (await first.result()).session_id == first.session_id
    assert len(worker.calls) == 1


@promise
@durable
async def a_finished_key_returns_its_result(open_remit: OpenRemit, root: Path) -> None:
    worker = Scripted("worker", answer("once"))
    async with open_remit(root, [worker]) as remit:
        first = await remit.delegate("worker", n=1, key="k")
    async with open_remit(root, [worker]) as remit:
        assert await remit.delegate("worker", n=1, key="k") == first
        assert remit.export_state()["total"] == 1
    assert len(worker.calls) == 1


@promise
async def a_key_belongs_to_one_call(open_remit: OpenRemit, root: Path) -> None:
    worker = Scripted("worker")
    async with open_remit(root, [worker]) as remit:
        await remit.delegate("worker", n=1, key="k")
        for refused in (await remit.delegate("worker", n=2, key="k"), await (await remit.start("worker", n=2, key="k")).result()):
            assert (refused.stop_reason, code_of(refused)) == (StopReason.REFUSED, "INVALID_PARAMETERS")
            assert "another call" in refused.errors[0].message
            assert (await remit.describe(refused.session_id)).state is State.REFUSED
            assert refused.next_steps
    assert len(worker.calls) == 1


# ---- checkpoints


@promise
async def the_last_checkpoint_is_returned_at_the_end(open_remit: OpenRemit, root: Path) -> None:
    @agent("saver", timeout=0.3)
    async def saver(ctx: Context) -> None:
        ctx.emit(ctx.saved)
        await ctx.checkpoint({"page": 1})
        await ctx.checkpoint({"page": 2})
        ctx.emit(ctx.saved)
        await asyncio.sleep(60)

    async with open_remit(root, [saver]) as remit:
        result = await remit.delegate("saver")
        assert result.stop_reason is StopReason.DEADLINE
        assert result.data == {"chunks": [None, {"page": 2}], "checkpoint": {"page": 2}}


# ---- cancelling


@promise
async def cancelling_a_tree_acknowledges_every_node(open_remit: OpenRemit, root: Path) -> None:
    leaf = Scripted("leaf", hang())

    @agent("middle")
    async def middle(ctx: Context) -> None:
        await asyncio.gather(*(ctx.delegate("leaf", n=n) for n in range(3)))

    @agent("top")
    async def top(ctx: Context) -> None:
        await ctx.delegate("middle")

    async with open_remit(root, [top, middle, leaf]) as remit:
        handle = await remit.start("top")
        await until(lambda: len(leaf.calls) == 3)
        acknowledged = await remit.cancel(handle.session_id, "not wanted")
        assert sorted(node["agent"] for node in acknowledged) == ["leaf", "leaf", "leaf", "middle", "top"]
        assert {node["state"] for node in acknowledged} == {"stopped"}
        result = await handle.result()
        assert (result.status, result.stop_reason, code_of(result)) == (Status.PARTIAL, StopReason.CANCELLED, "CANCELLED")
        assert "not wanted" in result.errors[0].message
        tree = await remit.tree(handle.session_id)
        assert {record.state for record in tree} == {State.CANCELLED}
        assert remit.export_state()["active"] == 0
        again = await remit.cancel(handle.session_id)
        assert again[0]["state"] == "already cancelled"


@promise
async def cancelling_what_waits_for_a_slot_runs_nothing(open_remit: OpenRemit, root: Path) -> None:
    go = asyncio.Event()
    worker = Scripted("worker", wait(go))
    async with open_remit(root, [worker], slots_total=1) as remit:
        first = await remit.start("worker")
        queued = await remit.start("worker")
        await remit.cancel(queued.session_id, "no")
        assert (await queued.result()).stop_reason is StopReason.CANCELLED
        go.set()
        assert (await first.result()).ok
        assert (await remit.delegate("worker")).ok
    assert len(worker.calls) == 2


@promise
async def a_caller_that_stops_waiting_ends_its_delegation(open_remit: OpenRemit, root: Path) -> None:
    worker = Scripted("worker", hang())
    async with open_remit(root, [worker]) as remit:
        waiting = asyncio.create_task(remit.delegate("worker"))
        await worker.called.wait()
        waiting.cancel()
        await asyncio.wait([waiting])
        await until(lambda: remit.export_state()["active"] == 0)
        assert [r.state for r in await remit.history()] == [State.CANCELLED]
