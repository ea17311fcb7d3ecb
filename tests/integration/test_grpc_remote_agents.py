"""Remote agents that register over gRPC, and their work when they fail or misbehave."""

import asyncio
import os
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from grpc_harness import Harness, ask, bearer, refusal, trailer
from remote_agent_harness import RemoteAgent, joined, remote_agent_harness

from remit import EventKind
from support.pace import until
from support.protobuf import value_of
from support.server import Permission

SERVE_ONLY = frozenset({Permission.SERVE})
SCHEMA = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"], "additionalProperties": False}


@pytest.fixture
async def harness(tmp_path: Path) -> AsyncIterator[Harness]:
    async with remote_agent_harness(tmp_path) as harness:
        yield harness


async def forever(remote: RemoteAgent, order: Any) -> None:
    await asyncio.Event().wait()


def old_file(path: Path) -> None:
    path.write_text("of another user")
    os.utime(path, (path.stat().st_mtime - 60,) * 2)


def names(harness: Harness) -> list[str]:
    return [spec.name for spec in harness.remit.directory.specs() if spec.kind == "remote"]


# ---- registration and work


async def test_registered_agent_is_listed_works_and_is_removed_on_exit(harness: Harness) -> None:
    remote = await joined(harness, schema=SCHEMA)
    assert names(harness) == ["words.count"]
    returned = await harness.remit.delegate("words.count", parameters={"text": "one two three"}, timeout=20)
    assert returned.unwrap() == 3
    events = await harness.remit.events(returned.session_id)
    assert [event.body for event in events if event.kind is EventKind.PROGRESS] == [{"message": "counting", "fraction": 0.5}]

    order = remote.orders[0]
    assert order.context["session_id"] == returned.session_id
    assert order.context["delegation_depth"] == 1
    assert list(order.context["delegation_path"]) == ["orchestrator", "words.count"]
    assert order.traceparent.startswith("00-")
    assert order.deadline_ns > time.time_ns()

    known = {"agent_id": remote.registered.agent_id, "secret": remote.registered.secret}
    await remote.calls.Heartbeat(remote.pb.HeartbeatRequest(**known))
    await remote.calls.Unregister(remote.pb.UnregisterRequest(**known))
    assert names(harness) == []
    assert (await refusal(remote.calls.Heartbeat(remote.pb.HeartbeatRequest(**known)))).code().name == "NOT_FOUND"
    refused = await harness.remit.delegate("words.count", parameters={"text": ""})
    assert refused.errors[0].code == "INVALID_TARGET"


async def test_remote_agent_delegates_to_children(harness: Harness) -> None:
    """Each assignment has a token: requests with it become children of that delegation, one level deeper."""

    async def asks(remote: RemoteAgent, order: Any) -> Any:
        tasks = await harness.tasks()
        answer = await tasks.ExecuteTask(ask("text.count", text="a b"), metadata=bearer(order.delegation_token))
        return {"depth": answer.task.depth, "parent": answer.task.parent_id, "path": list(answer.task.path)}

    await joined(harness, does=asks)
    returned = await harness.remit.delegate("words.count", parameters={}, timeout=20)
    assert returned.unwrap() == {"depth": 2, "parent": returned.session_id, "path": ["orchestrator", "words.count", "text.count"]}


async def test_messages_of_the_agent_reach_the_delegation(harness: Harness, tmp_path: Path) -> None:
    old_file(tmp_path / ".env")

    async def tells(remote: RemoteAgent, order: Any) -> Any:

        (tmp_path / "out.txt").write_text("made")
        key = {"work_id": order.work_id}
        await remote.send(accepted=remote.pb.WorkAccepted(**key))
        await remote.send(output=remote.pb.WorkOutput(chunk=value_of({"half": 1}), **key))
        await remote.send(artifact=remote.pb.WorkArtifact(type="data", path="out.txt", summary="Made.", **key))
        for path in ("../outside", ".env", ".remit/remit.db", "./.REMIT/remit.db"):  # an agent cannot publish files that it did not create
            await remote.send(artifact=remote.pb.WorkArtifact(type="data", path=path, **key))
        await remote.send(spent=remote.pb.WorkSpent(tokens=5, cost=0.5, **key))
        await remote.send(spent=remote.pb.WorkSpent(tokens=-100, cost=float("-inf"), **key))  # nothing is refunded
        return "told"

    await joined(harness, does=tells)
    returned = await harness.remit.delegate("words.count", parameters={}, timeout=20)
    assert returned.unwrap() == "told"
    assert [(a.path, a.evidence) for a in returned.artifacts] == [("out.txt", "checked")]
    events = await harness.remit.events(returned.session_id)
    assert [e.body for e in events if e.kind is EventKind.DATA] == [{"chunk": {"half": 1}}]
    assert [e.body for e in events if e.kind is EventKind.SPENT][-1] == {"tokens": 5, "cost": 0.5}
    assert any("not inside the project" in e.body["message"] for e in events if e.kind is EventKind.PROGRESS)


async def test_returns_and_failures_are_handled_as_for_local_agents(harness: Harness) -> None:

    async def returns(remote: RemoteAgent, order: Any) -> None:
        kind = order.parameters["kind"]
        if kind == "failed":
            await remote.send(failed=remote.pb.WorkFailed(work_id=order.work_id, message="no disk", code="DISK_FULL"))
            return
        answer = {"status": "partial", "summary": "Half of it was done.", "errors": [{"type": "execution", "message": "no more"}]}
        body = 'It is done: ```json\n{"status": "sideways"}\n```' if kind == "nonsense" else answer
        await remote.send(done=remote.pb.WorkDone(work_id=order.work_id, result=value_of(body), is_return=True))

    await joined(harness, does=returns)
    got = {
        kind: await harness.remit.delegate("words.count", parameters={"kind": kind}, timeout=20) for kind in ("half", "failed", "nonsense")
    }
    assert (got["half"].status, got["half"].summary) == ("partial", "Half of it was done.")
    error = got["failed"].errors[0]
    assert (got["failed"].status, error.code, error.message, error.recoverable) == ("failed", "DISK_FULL", "no disk", False)
    assert (got["nonsense"].status, got["nonsense"].errors[0].code) == ("failed", "VALIDATION_FAILED")


# ---- deadlines


async def test_agent_is_asked_to_hand_in_then_stopped_and_late_messages_are_ignored(harness: Harness) -> None:
    async def late(remote: RemoteAgent, order: Any) -> None:

        await remote.until(lambda: any("WorkStop" in type(one).__name__ for one in remote.messages))
        await remote.send(done=remote.pb.WorkDone(work_id=order.work_id, result=value_of("too late")))

    remote = await joined(harness, does=late)
    returned = await harness.remit.delegate("words.count", parameters={}, timeout=1.0)
    assert (returned.status, returned.stop_reason) == ("partial", "deadline")
    await remote.until(lambda: len(remote.messages) == 2)
    assert [type(one).__name__ for one in remote.messages] == ["WorkHandIn", "WorkStop"]
    assert remote.messages[1].work_id == remote.orders[0].work_id
    # The slot is free again, and late messages changed nothing.
    remote.does = RemoteAgent(harness).does
    assert (await harness.remit.delegate("words.count", parameters={"text": "a b"}, timeout=10)).unwrap() == 2
    assert (await harness.remit.describe(returned.session_id)).state == "timeout"


# ---- slots, and lost agents


async def test_agent_gets_no_more_work_than_it_has_slots(harness: Harness) -> None:
    remote = await joined(harness, does=forever, slots=2)
    handles = [await harness.remit.start("words.count", parameters={"n": n}, timeout=30) for n in range(3)]
    await remote.until(lambda: len(remote.orders) == 2)
    await asyncio.sleep(0.1)
    assert len(remote.orders) == 2
    await handles[0].cancel()
    await remote.until(lambda: len(remote.orders) == 3)
    for handle in handles[1:]:
        await handle.cancel()


@pytest.mark.parametrize("is_replaced", [False, True])
async def test_work_of_a_lost_agent_fails_and_it_may_register_again(harness: Harness, is_replaced: bool) -> None:
    """Its stream broke, or it registers again before the server has noticed that."""
    first = await joined(harness, does=forever)
    handles = [await harness.remit.start("words.count", parameters={"text": "a b"}, timeout=20) for _ in range(2)]
    await first.until(lambda: first.orders)
    if not is_replaced:
        await first.die()
        await until(lambda: not names(harness))
    second = await joined(harness)
    for handle in handles:  # one is running, one waits for its slot
        returned = await asyncio.wait_for(handle.result(), 60)
        assert (returned.status, returned.stop_reason, returned.errors[0].code) == ("failed", "unavailable", "AGENT_UNAVAILABLE")
    assert second.orders == []
    assert (await harness.remit.delegate("words.count", parameters={"text": "a b"}, timeout=10)).unwrap() == 2


async def test_agent_without_heartbeats_is_removed(tmp_path: Path) -> None:
    async with remote_agent_harness(tmp_path, heartbeat_seconds=0.2) as harness:
        remote = await joined(harness, does=forever)
        handle = await harness.remit.start("words.count", parameters={}, timeout=30)
        returned = await asyncio.wait_for(handle.result(), 60)
        assert returned.errors[0].code == "AGENT_UNAVAILABLE"
        assert names(harness) == []
        assert remote.registered.heartbeat_ns == 200_000_000


# ---- authorization


async def test_agent_names_need_a_grant(harness: Harness) -> None:
    allowed = harness.token("images", SERVE_ONLY, agents=("images",))
    await joined(harness, allowed, name="images", operation="resize")
    for token, name, code in (
        (allowed, "words", "FORBIDDEN"),
        (harness.token("nobody"), "words", "FORBIDDEN"),
        ("", "worker", "NAME_TAKEN"),
        ("", "Text", "NAME_TAKEN"),
        ("", "orchestrator", "NAME_TAKEN"),
        ("", "echo", "NAME_TAKEN"),
        ("", "a.b", "INVALID_PARAMETERS"),
        ("", "wörds.", "INVALID_PARAMETERS"),
        ("rmt_nothing", "words", "UNAUTHENTICATED"),
    ):
        error = await refusal(RemoteAgent(harness, token).register(name))
        assert trailer(error, "remit-code") == code, (name, error)
    assert names(harness) == ["images.resize"]


async def test_invalid_registrations_are_refused(harness: Harness) -> None:
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
        assert trailer(await refusal(RemoteAgent(harness).register(**declared)), "remit-code") == "INVALID_PARAMETERS", declared
    assert names(harness) == []


async def test_stolen_or_foreign_secret_is_refused(harness: Harness) -> None:
    owner = harness.token("owner", SERVE_ONLY)
    remote = await joined(harness, owner)
    attacker = RemoteAgent(harness, harness.token("attacker", SERVE_ONLY))
    await attacker.register("other")
    attacker.registered = remote.registered  # it knows everything of the other agent except its token
    for attempt in (
        attacker.connect(),
        attacker.calls.Unregister(
            remote.pb.UnregisterRequest(agent_id=remote.registered.agent_id, secret=remote.registered.secret), metadata=attacker.metadata
        ),
        remote.calls.Heartbeat(
            remote.pb.HeartbeatRequest(agent_id=remote.registered.agent_id, secret="rma_wrong"), metadata=remote.metadata
        ),
    ):
        assert (await refusal(attempt)).code().name == "NOT_FOUND"
    assert "words.count" in names(harness)


# ---- hostile agents


async def test_floods_unknown_ids_and_duplicate_results_are_ignored(harness: Harness) -> None:

    async def floods(remote: RemoteAgent, order: Any) -> Any:
        for number in range(3000):
            await remote.send(
                progress=remote.pb.WorkProgress(work_id=order.work_id if number % 2 else "work_x", message="m" * 1000, fraction=2e300)
            )
        for _ in range(40):
            await remote.send(output=remote.pb.WorkOutput(work_id=order.work_id, chunk=value_of("x" * 300_000)))
        await remote.send(done=remote.pb.WorkDone(work_id="work_other", result=value_of(1)))
        await remote.send(done=remote.pb.WorkDone(work_id=order.work_id, result=value_of("first")))
        await remote.send(failed=remote.pb.WorkFailed(work_id=order.work_id, message="second"))
        await remote.send(hello=remote.pb.Hello(agent_id="x"))
        await remote.send()
        return None

    await joined(harness, does=floods)
    flooded = await harness.remit.start("words.count", parameters={}, timeout=30)
    assert (await harness.remit.delegate("text.count", parameters={"text": "a b"})).unwrap() == 2  # others are served in the meantime
    assert (await flooded.result()).unwrap() == "first"
    printed = await harness.remit.events(flooded.session_id)
    assert sum(len(str(event.body)) for event in printed) < 6 * 1024 * 1024


@pytest.mark.parametrize("is_return", [True, False])
async def test_return_cannot_claim_existing_files(harness: Harness, tmp_path: Path, is_return: bool) -> None:
    """Readers of a return may read its artifacts: otherwise an agent could publish any file."""
    old_file(tmp_path / ".env")

    async def takes(remote: RemoteAgent, order: Any) -> None:

        returned = {"status": "completed", "summary": "It is done. Look.", "artifacts": [{"type": "data", "path": ".env"}], "errors": []}
        await remote.send(done=remote.pb.WorkDone(work_id=order.work_id, result=value_of(returned), is_return=is_return))

    await joined(harness, does=takes)
    returned = await harness.remit.delegate("words.count", parameters={}, timeout=20)
    assert (returned.status, returned.artifacts) == ("failed", ())


async def test_agent_name_belongs_to_one_principal_while_in_use(harness: Harness) -> None:
    """Otherwise another principal would receive its work, parameters and delegation tokens."""
    first = await joined(harness, harness.token("first", SERVE_ONLY), does=forever)
    second = harness.token("second", SERVE_ONLY)
    assert trailer(await refusal(RemoteAgent(harness, second).register()), "remit-code") == "NAME_TAKEN"
    await first.die()
    await until(lambda: not names(harness))
    await joined(harness, second)
