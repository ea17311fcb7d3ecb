"""Lifecycle events: starts and ends of delegations, for listeners."""

from pathlib import Path
from typing import Any

import pytest

from remit import ErrorInfo, LifecycleEvent, LifecycleKind, Misused, Remit, agent


@agent("shelf.look")
async def look(ctx: Any) -> str:
    ctx.spend(tokens=7)
    return "books"


@agent("broken")
async def broken() -> str:
    raise ValueError("no")


def failing(_: LifecycleEvent) -> None:
    raise RuntimeError("affects no one else")


async def test_start_and_end_of_each_delegation_are_published(tmp_path: Path) -> None:
    async with Remit.open(tmp_path, agents=[look, broken]) as remit:
        heard: list[LifecycleEvent] = []
        remit.on_event(failing)
        remit.on_event(heard.append)
        assert (await remit.delegate("shelf.look")).ok
        await remit.delegate("broken")
        refused = await remit.delegate("unknown")
    assert [(str(one.kind).removeprefix("delegation."), one.agent, one.success) for one in heard] == [
        ("started", "shelf.look", None), ("completed", "shelf.look", True),
        ("started", "broken", None), ("failed", "broken", False), ("failed", "unknown", False),
    ]  # fmt: skip
    done = heard[1]
    assert (done.target, done.operation, done.tokens, done.error) == ("shelf", "look", 7, None)
    assert done.duration_seconds is not None
    assert done.duration_seconds >= 0
    assert heard[3].error is not None
    assert "ValueError" in heard[3].error.message
    assert (heard[4].session_id, heard[4].state) == (refused.session_id, "refused")


async def test_metrics_are_computed_from_the_record(tmp_path: Path) -> None:
    async with Remit.open(tmp_path, agents=[look, broken]) as remit:
        for name in ("shelf.look", "shelf.look", "broken"):
            await remit.delegate(name)
        found = await remit.metrics(since_seconds=600)
        assert (found.total, found.success.count, found.tokens) == (3, 2, 14)
        assert {one.of for one in found.alerts()} == {None, "broken"}
    async with Remit.open(tmp_path) as again:
        assert (await again.metrics()).total == 3
        assert (await again.metrics(since_seconds=-10)).total == 0


async def test_listener_gets_starts_and_ends_only_by_default(tmp_path: Path) -> None:
    async with Remit.open(tmp_path, agents=[look]) as remit:
        few: list[LifecycleEvent] = []
        every: list[LifecycleEvent] = []
        remit.on_event(few.append)
        remit.on_event(every.append, LifecycleKind)
        remit.report_access("http", "token:ci")
        await remit.delegate("shelf.look")
        with pytest.raises(Misused, match=r"delegation\.started"):
            remit.on_event(few.append, ["delegation.jump"])  # type: ignore[list-item]
    assert [one.kind for one in few] == [LifecycleKind.STARTED, LifecycleKind.COMPLETED]
    assert [one.kind for one in every] == [LifecycleKind.ADMITTED, LifecycleKind.STARTED, LifecycleKind.COMPLETED]


async def test_authentication_results_are_published(tmp_path: Path) -> None:
    async with Remit.open(tmp_path) as remit:
        heard: list[LifecycleEvent] = []
        remit.report_access("http", "token:ci")  # without listeners
        remit.on_event(heard.append, [LifecycleKind.ADMITTED, LifecycleKind.TURNED_AWAY])
        remit.report_access("http", "token:ci")
        error = ErrorInfo(type="permission", message="no", code="UNAUTHENTICATED", recoverable=False, recommendation="ask")
        remit.report_access("grpc", None, error)
    assert [(str(one.kind), one.door, one.principal, one.success) for one in heard] == [
        ("door.admitted", "http", "token:ci", True),
        ("door.refused", "grpc", None, False),
    ]
