"""Agents elsewhere that register over gRPC, and what becomes of their work whatever they do."""

import asyncio
import os
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from grpc_harness import Stage, ask, bearer, refusal, trailer
from remote_agent_harness import Far, joined, remote_agent_harness

from remit import Context, agent
from remit.core.events import EventKind
from remit.server.tokens import Permission
from support.pace import until

SERVING = frozenset({Permission.SERVE})
SCHEMA = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"], "additionalProperties": False}


@pytest.fixture
async def stage(tmp_path: Path) -> AsyncIterator[Stage]:
    async with remote_agent_harness(tmp_path) as stage:
        yield stage


async def forever(far: Far, order: Any) -> None:
    await asyncio.Event().wait()


def old_file(path: Path) -> None:
    path.write_text("of somebody else's")
    os.utime(path, (path.stat().st_mtime - 60,) * 2)


def names(stage: Stage) -> list[str]:
    return [spec.name for spec in stage.remit.directory.specs() if spec.kind == "remote"]


# ---- coming, working, going


async def test_registered_agent_is_listed_works_and_is_removed_on_exit(stage: Stage) -> None:
    far = await joined(stage, schema=SCHEMA)
    assert names(stage) == ["words.count"]
    returned = await stage.remit.delegate("words.count", parameters={"text": "one two three"}, timeout=20)
    assert returned.unwrap() == 3
    events = await stage.remit.events(returned.session_id)
    assert [event.body for event in events if event.kind is EventKind.PROGRESS] == [{"message": "counting", "fraction": 0.5}]

    order = far.orders[0]
    assert order.context["session_id"] == returned.session_id
    assert order.context["delegation_depth"] == 1
    assert list(order.context["delegation_path"]) == ["orchestrator", "words.count"]
    assert order.traceparent.startswith("00-")
    assert order.deadline_ns > time.time_ns()

    known = {"agent_id": far.registered.agent_id, "secret": far.registered.secret}
    await far.calls.Heartbeat(far.pb.HeartbeatRequest(**known))
    await far.calls.Unregister(far.pb.UnregisterRequest(**known))
    assert names(stage) == []
    assert (await refusal(far.calls.Heartbeat(far.pb.HeartbeatRequest(**known)))).code().name == "NOT_FOUND"
    refused = await stage.remit.delegate("words.count", parameters={"text": ""})
    assert refused.errors[0].code == "INVALID_TARGET"


async def test_parameters_against_the_schema_are_refused_before_dispatch(stage: Stage) -> None:
    far = await joined(stage, schema=SCHEMA)
    for wrong in ({}, {"text": 7}, {"text": "a", "more": 1}):
        refused = await stage.remit.delegate("words.count", parameters=wrong)
        assert (refused.stop_reason, refused.errors[0].code) == ("refused", "INVALID_PARAMETERS")
    assert far.orders == []


async def test_remote_agent_delegates_to_children(stage: Stage) -> None:
    """Each order has a token: what is asked for with it is the child of that delegation, one deeper."""

    async def asks(far: Far, order: Any) -> Any:
        tasks = await stage.tasks()
        answer = await tasks.ExecuteTask(ask("text.count", text="a b"), metadata=bearer(order.delegation_token))
        return {"depth": answer.task.depth, "parent": answer.task.parent_id, "path": list(answer.task.path)}

    await joined(stage, does=asks)
    returned = await stage.remit.delegate("words.count", parameters={}, timeout=20)
    assert returned.unwrap() == {"depth": 2, "parent": returned.session_id, "path": ["orchestrator", "words.count", "text.count"]}


async def test_messages_of_the_agent_reach_the_delegation(stage: Stage, tmp_path: Path) -> None:
    old_file(tmp_path / ".env")

    async def tells(far: Far, order: Any) -> Any:
        from remit.agents.proto.values import value_of

        (tmp_path / "out.txt").write_text("made")
        key = {"work_id": order.work_id}
        await far.say(accepted=far.pb.WorkAccepted(**key))
        await far.say(output=far.pb.WorkOutput(chunk=value_of({"half": 1}), **key))
        await far.say(artifact=far.pb.WorkArtifact(type="data", path="out.txt", summary="Made.", **key))
        for path in ("../outside", ".env", ".remit/remit.db", "./.REMIT/remit.db"):  # what it did not make, it cannot have shown to others
            await far.say(artifact=far.pb.WorkArtifact(type="data", path=path, **key))
        await far.say(spent=far.pb.WorkSpent(tokens=5, cost=0.5, **key))
        await far.say(spent=far.pb.WorkSpent(tokens=-100, cost=float("-inf"), **key))  # nothing is given back
        return "told"

    await joined(stage, does=tells)
    returned = await stage.remit.delegate("words.count", parameters={}, timeout=20)
    assert returned.unwrap() == "told"
    assert [(a.path, a.evidence) for a in returned.artifacts] == [("out.txt", "checked")]
    events = await stage.remit.events(returned.session_id)
    assert [e.body for e in events if e.kind is EventKind.DATA] == [{"chunk": {"half": 1}}]
    assert [e.body for e in events if e.kind is EventKind.SPENT][-1] == {"tokens": 5, "cost": 0.5}
    assert any("not inside the project" in e.body["message"] for e in events if e.kind is EventKind.PROGRESS)


async def test_returns_and_failures_are_handled_as_for_local_agents(stage: Stage) -> None:
    from remit.agents.proto.values import value_of

    async def returns(far: Far, order: Any) -> None:
        kind = order.parameters["kind"]
        if kind == "failed":
            await far.say(failed=far.pb.WorkFailed(work_id=order.work_id, message="no disk", code="DISK_FULL"))
            return
        answer = {"status": "partial", "summary": "Half of it was done.", "errors": [{"type": "execution", "message": "no more"}]}
        body = 'It is done: ```json\n{"status": "sideways"}\n```' if kind == "nonsense" else answer
        await far.say(done=far.pb.WorkDone(work_id=order.work_id, result=value_of(body), is_return=True))

    await joined(stage, does=returns)
    got = {
        kind: await stage.remit.delegate("words.count", parameters={"kind": kind}, timeout=20) for kind in ("half", "failed", "nonsense")
    }
    assert (got["half"].status, got["half"].summary) == ("partial", "Half of it was done.")
    error = got["failed"].errors[0]
    assert (got["failed"].status, error.code, error.message, error.recoverable) == ("failed", "DISK_FULL", "no disk", False)
    assert (got["nonsense"].status, got["nonsense"].errors[0].code) == ("failed", "VALIDATION_FAILED")


# ---- time


async def test_agent_is_asked_to_hand_in_then_stopped_and_late_messages_are_ignored(stage: Stage) -> None:
    async def late(far: Far, order: Any) -> None:
        from remit.agents.proto.values import value_of

        await far.until(lambda: any("WorkStop" in type(one).__name__ for one in far.told))
        await far.say(done=far.pb.WorkDone(work_id=order.work_id, result=value_of("too late")))

    far = await joined(stage, does=late)
    returned = await stage.remit.delegate("words.count", parameters={}, timeout=1.0)
    assert (returned.status, returned.stop_reason) == ("partial", "deadline")
    await far.until(lambda: len(far.told) == 2)
    assert [type(one).__name__ for one in far.told] == ["WorkHandIn", "WorkStop"]
    assert far.told[1].work_id == far.orders[0].work_id
    # Its slot is free again, and what it said too late has changed nothing.
    far.does = Far(stage).does
    assert (await stage.remit.delegate("words.count", parameters={"text": "a b"}, timeout=10)).unwrap() == 2
    assert (await stage.remit.describe(returned.session_id)).state == "timeout"


async def test_cancelled_task_is_stopped_remotely(stage: Stage) -> None:
    far = await joined(stage, does=forever)
    handle = await stage.remit.start("words.count", parameters={}, timeout=30)
    await far.until(lambda: far.orders)
    await stage.remit.cancel(handle.session_id, "enough")
    await far.until(lambda: far.told)
    assert far.told[0].work_id == far.orders[0].work_id
    assert (await handle.result()).stop_reason == "cancelled"


# ---- several of one name


async def test_instances_of_one_name_share_work_within_their_slots(stage: Stage) -> None:
    first = await joined(stage, does=forever, slots=2)
    second = await joined(stage, does=forever, slots=1)
    handles = [await stage.remit.start("words.count", parameters={"n": n}, timeout=30) for n in range(5)]
    await until(lambda: len(first.orders) + len(second.orders) == 3)
    await asyncio.sleep(0.1)
    assert (len(first.orders), len(second.orders)) == (2, 1)
    third = await joined(stage, does=forever, slots=2)  # those that wait are handed to it as soon as it is there
    await third.until(lambda: len(third.orders) == 2)
    for handle in handles:
        await stage.remit.cancel(handle.session_id)


async def test_instance_can_be_addressed_by_its_id(stage: Stage) -> None:
    async def who(far: Far, order: Any) -> Any:
        return far.registered.agent_id

    both = [await joined(stage, does=who, slots=4) for _ in range(2)]
    tasks = await stage.tasks()
    for far in both:
        for _ in range(2):
            answer = await tasks.ExecuteTask(ask("count", agent_id=far.registered.agent_id))
            assert answer.task.data.string_value == far.registered.agent_id
    assert [len(far.orders) for far in both] == [2, 2]


# ---- lost


@pytest.mark.parametrize("is_safe", [False, True])
async def test_work_of_a_lost_instance_is_retried_only_if_repeatable(stage: Stage, is_safe: bool) -> None:
    first = await joined(stage, does=forever, is_safe_to_repeat=is_safe)
    handle = await stage.remit.start("words.count", parameters={"text": "a b"}, timeout=20)
    await first.until(lambda: first.orders)
    second = await joined(stage, is_safe_to_repeat=is_safe)
    await first.die()
    returned = await asyncio.wait_for(handle.result(), 10)
    if is_safe:
        assert returned.unwrap() == 2
        assert len(second.orders) == 1
    else:
        assert (returned.status, returned.stop_reason, returned.errors[0].code) == ("failed", "unavailable", "AGENT_UNAVAILABLE")
        assert second.orders == []


async def test_repeatable_work_waits_for_a_returning_instance(stage: Stage) -> None:
    first = await joined(stage, does=forever, is_safe_to_repeat=True)
    handle = await stage.remit.start("words.count", parameters={"text": "a b c"}, timeout=20)
    await first.until(lambda: first.orders)
    await first.die()
    await asyncio.sleep(0.2)
    again = Far(stage)
    again.registered = first.registered
    from remit.agents.proto.v1 import tasks_pb2_grpc as rpc

    again.calls = rpc.AgentServiceStub(await stage.channel())
    await again.connect()  # the same one: it need not register again
    assert (await asyncio.wait_for(handle.result(), 10)).unwrap() == 3


async def test_work_that_kills_its_agents_is_abandoned(stage: Stage) -> None:
    async def dies(far: Far, order: Any) -> None:
        await far.die()

    for _ in range(7):
        await joined(stage, does=dies, is_safe_to_repeat=True)
    returned = await stage.remit.delegate("words.count", parameters={}, timeout=20)
    assert returned.errors[0].code == "AGENT_UNAVAILABLE"


async def test_instance_without_heartbeats_is_removed(tmp_path: Path) -> None:
    async with remote_agent_harness(tmp_path, heartbeat_seconds=0.2) as stage:
        far = await joined(stage, does=forever)
        handle = await stage.remit.start("words.count", parameters={}, timeout=30)
        returned = await asyncio.wait_for(handle.result(), 10)
        assert returned.errors[0].code == "AGENT_UNAVAILABLE"
        assert names(stage) == []
        assert far.registered.heartbeat_ns == 200_000_000


async def test_draining_instance_finishes_its_work_and_gets_no_more(stage: Stage) -> None:
    go = asyncio.Event()

    async def waits(far: Far, order: Any) -> Any:
        await go.wait()
        return "finished"

    far = await joined(stage, does=waits, slots=3)
    handle = await stage.remit.start("words.count", parameters={}, timeout=20)
    await far.until(lambda: far.orders)
    await far.calls.Unregister(far.pb.UnregisterRequest(agent_id=far.registered.agent_id, secret=far.registered.secret))
    assert names(stage) == []
    go.set()
    assert (await handle.result()).unwrap() == "finished"


async def test_instance_without_a_stream_is_removed(tmp_path: Path) -> None:
    async with remote_agent_harness(tmp_path, heartbeat_seconds=0.2) as stage:
        far = Far(stage)
        known = await far.register(is_safe_to_repeat=True)
        handle = await stage.remit.start("words.count", parameters={}, timeout=30)

        async def beats() -> None:
            while True:
                await far.calls.Heartbeat(far.pb.HeartbeatRequest(agent_id=known.agent_id, secret=known.secret))
                await asyncio.sleep(0.05)

        assert (await refusal(asyncio.wait_for(beats(), 10))).code().name == "NOT_FOUND"
        assert (await asyncio.wait_for(handle.result(), 10)).errors[0].code == "AGENT_UNAVAILABLE"


async def test_urgent_work_is_dispatched_first(stage: Stage) -> None:
    """Also between operations that share the slots of one agent."""
    go, done = asyncio.Event(), []

    async def notes(far: Far, order: Any) -> Any:
        await go.wait()
        done.append(order.parameters["n"])
        return "noted"

    far = await joined(stage, does=notes)
    handles = []
    for number, priority in enumerate(("normal", "low", "normal", "critical")):
        handles.append(await stage.remit.start("words.count", parameters={"n": number}, priority=priority, timeout=30))
        await until(lambda: far.orders)
    go.set()
    for handle in handles:
        await handle.result()
    assert done == [0, 3, 2, 1]


# ---- who may


async def test_agent_names_need_a_grant(stage: Stage) -> None:
    allowed = stage.token("images", SERVING, agents=("images",))
    await joined(stage, allowed, name="images", operation="resize")
    for token, name, code in (
        (allowed, "words", "FORBIDDEN"),
        (stage.token("nobody"), "words", "FORBIDDEN"),
        ("", "worker", "NAME_TAKEN"),
        ("", "Text", "NAME_TAKEN"),
        ("", "orchestrator", "NAME_TAKEN"),
        ("", "echo", "NAME_TAKEN"),
        ("", "a.b", "INVALID_PARAMETERS"),
        ("", "wörds.", "INVALID_PARAMETERS"),
        ("rmt_nothing", "words", "UNAUTHENTICATED"),
    ):
        error = await refusal(Far(stage, token).register(name))
        assert trailer(error, "remit-code") == code, (name, error)
    assert names(stage) == ["images.resize"]


async def test_invalid_registrations_are_refused(stage: Stage) -> None:
    for declared in (
        {"operation": "a.b"},
        {"slots": -1},
        {"slots": 10**6},
        {"timeout_ns": -5},
        {"effects": ["magic"]},
        {"schema": {"type": "object", "properties": {"a": {"$ref": "http://127.0.0.1/x"}}}},
        {"schema": {"type": "array"}},
        {"schema": {"type": "object", "properties": {"a": {"pattern": "(a+)+(?=b)"}}}},
    ):
        assert trailer(await refusal(Far(stage).register(**declared)), "remit-code") == "INVALID_PARAMETERS", declared
    assert names(stage) == []


async def test_stolen_or_foreign_secret_is_refused(stage: Stage) -> None:
    owner = stage.token("owner", SERVING)
    far = await joined(stage, owner)
    thief = Far(stage, stage.token("thief", SERVING))
    await thief.register("other")
    thief.registered = far.registered  # it has everything of the other's but its token
    for attempt in (
        thief.connect(),
        thief.calls.Unregister(
            far.pb.UnregisterRequest(agent_id=far.registered.agent_id, secret=far.registered.secret), metadata=thief.metadata
        ),
        far.calls.Heartbeat(far.pb.HeartbeatRequest(agent_id=far.registered.agent_id, secret="rma_wrong"), metadata=far.metadata),
    ):
        assert (await refusal(attempt)).code().name == "NOT_FOUND"
    assert "words.count" in names(stage)


# ---- hostile ones


async def test_floods_unknown_ids_and_duplicate_results_are_ignored(stage: Stage) -> None:
    from remit.agents.proto.values import value_of

    async def floods(far: Far, order: Any) -> Any:
        for number in range(3000):
            await far.say(
                progress=far.pb.WorkProgress(work_id=order.work_id if number % 2 else "work_x", message="m" * 1000, fraction=2e300)
            )
        for _ in range(40):
            await far.say(output=far.pb.WorkOutput(work_id=order.work_id, chunk=value_of("x" * 300_000)))
        await far.say(done=far.pb.WorkDone(work_id="work_other", result=value_of(1)))
        await far.say(done=far.pb.WorkDone(work_id=order.work_id, result=value_of("first")))
        await far.say(failed=far.pb.WorkFailed(work_id=order.work_id, message="second"))
        await far.say(hello=far.pb.Hello(agent_id="x"))
        await far.say()
        return None

    await joined(stage, does=floods)
    flooded = await stage.remit.start("words.count", parameters={}, timeout=30)
    assert (await stage.remit.delegate("text.count", parameters={"text": "a b"})).unwrap() == 2  # others are served meanwhile
    assert (await flooded.result()).unwrap() == "first"
    said = await stage.remit.events(flooded.session_id)
    assert sum(len(str(event.body)) for event in said) < 6 * 1024 * 1024


async def test_stream_without_identification_is_refused(stage: Stage) -> None:
    far = Far(stage)
    await far.register()
    stream = far.calls.Work()
    await stream.write(far.pb.AgentMessage(accepted=far.pb.WorkAccepted(work_id="x")))
    assert (await refusal(stream.read())).code().name == "INVALID_ARGUMENT"


async def test_project_file_and_registered_agent_do_not_conflict(stage: Stage) -> None:
    await joined(stage, name="extra", operation="")
    assert names(stage) == ["extra"]

    @agent("extra")
    async def extra(ctx: Context) -> str:
        return "ours"

    from remit import Misused

    with pytest.raises(Misused, match="Two agents"):
        stage.remit.register(extra)


@pytest.mark.parametrize("is_return", [True, False])
async def test_return_cannot_claim_existing_files(stage: Stage, tmp_path: Path, is_return: bool) -> None:
    """Whoever sees a return may read its artifacts, over A2A for one: an agent let in to serve could have had any file shown to itself."""
    old_file(tmp_path / ".env")

    async def takes(far: Far, order: Any) -> None:
        from remit.agents.proto.values import value_of

        returned = {"status": "completed", "summary": "It is done. Look.", "artifacts": [{"type": "data", "path": ".env"}], "errors": []}
        await far.say(done=far.pb.WorkDone(work_id=order.work_id, result=value_of(returned), is_return=is_return))

    await joined(stage, does=takes)
    returned = await stage.remit.delegate("words.count", parameters={}, timeout=20)
    assert (returned.status, returned.artifacts) == ("failed", ())


async def test_agent_name_belongs_to_one_principal_while_in_use(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else whoever may serve was given the work, the parameters and the delegation tokens that were meant for another."""
    monkeypatch.setattr("remit.server.grpc.registry.BACK_SECONDS", 0.1)
    first = await joined(stage, stage.token("first", SERVING), is_safe_to_repeat=True, does=forever)
    second = stage.token("second", SERVING)
    assert trailer(await refusal(Far(stage, second).register()), "remit-code") == "NAME_TAKEN"
    handle = await stage.remit.start("words.count", parameters={}, timeout=20)
    await first.until(lambda: first.orders)
    await first.die()
    await until(lambda: not names(stage))
    assert trailer(await refusal(Far(stage, second).register()), "remit-code") == "NAME_TAKEN"  # its work still waits for it
    await handle.cancel()
    await joined(stage, second)


async def test_work_for_a_lost_agent_ends_at_its_deadline(tmp_path: Path) -> None:
    """As after a crash of the server: its work is on record, unsettled, of an owner that is gone."""
    async with remote_agent_harness(tmp_path) as stage:
        far = await joined(stage, stage.token("first", SERVING), is_safe_to_repeat=True, does=forever)
        handle = await stage.remit.start("words.count", parameters={}, timeout=2)
        await far.until(lambda: far.orders)
        stage.service.is_stopping = True
        assert await stage.remit.close(hand_over=True) == [handle.session_id]
    async with remote_agent_harness(tmp_path) as stage:
        assert not (await stage.remit.describe(handle.session_id)).state.is_settled
        assert trailer(await refusal(Far(stage, stage.token("second", SERVING)).register()), "remit-code") == "NAME_TAKEN"
        ended = await stage.remit.result(handle.session_id, wait_seconds=6)
        assert ended is not None
        assert (ended.status, [error.code for error in ended.errors]) == ("partial", ["AGENT_CRASHED"])
        await joined(stage, stage.token("second", SERVING))
