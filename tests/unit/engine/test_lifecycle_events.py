"""Events of S5.9: whoever listens is told of every delegation; who does not costs nothing and harms nobody."""

import asyncio
import gc
from pathlib import Path
from typing import Any

import pytest

from remit import Remit, agent
from remit.core.errors import Misused
from remit.core.lifecycle import LifecycleEvent, LifecycleKind
from remit.runtime.lifecycle import LifecycleBus, LifecycleEvents


@agent("shelf.look")
async def look(ctx: Any) -> str:
    ctx.spend(tokens=7)
    return "books"


@agent("broken")
async def broken() -> str:
    raise ValueError("no")


@agent("caller")
async def caller(ctx: Any) -> str:
    await ctx.delegate("shelf.look")
    return "done"


def told(events: list[LifecycleEvent]) -> list[tuple[str, str, bool | None]]:
    return [(str(one.kind).removeprefix("delegation."), one.agent, one.success) for one in events]


async def test_each_delegation_is_told_when_it_starts_and_how_it_ended(tmp_path: Path) -> None:
    async with Remit.open(tmp_path, agents=[look, broken]) as remit:
        heard: list[LifecycleEvent] = []
        remit.on_event(heard.append)
        await remit.delegate("shelf.look")
        await remit.delegate("broken")
        refused = await remit.delegate("nobody")
    assert told(heard) == [
        ("started", "shelf.look", None), ("completed", "shelf.look", True),
        ("started", "broken", None), ("failed", "broken", False), ("failed", "nobody", False),
    ]  # fmt: skip
    done = heard[1].to_dict()
    assert (done["target"], done["operation"], done["tokens"], done["error"]) == ("shelf", "look", 7, None)
    assert done["duration"] >= 0
    assert heard[3].error is not None
    assert "ValueError" in heard[3].error.message
    assert (heard[4].session_id, heard[4].state) == (refused.session_id, "refused")


async def test_children_are_told_with_their_caller(tmp_path: Path) -> None:
    async with Remit.open(tmp_path, agents=[look, caller]) as remit:
        heard: list[LifecycleEvent] = []
        remit.on_event(heard.append)
        returned = await remit.delegate("caller")
    assert [one.agent for one in heard] == ["caller", "shelf.look", "shelf.look", "caller"]
    assert (heard[1].parent_id, heard[1].root_id, heard[1].depth) == (returned.session_id, returned.session_id, 2)


async def test_whoever_stops_listening_hears_no_more(tmp_path: Path) -> None:
    async with Remit.open(tmp_path, agents=[look]) as remit:
        heard: list[LifecycleEvent] = []
        stop = remit.on_event(heard.append)
        await remit.delegate("shelf.look")
        stop()
        stop()
        await remit.delegate("shelf.look")
        assert len(heard) == 2


async def test_a_listener_that_raises_harms_nobody(tmp_path: Path) -> None:
    def raising(_: LifecycleEvent) -> None:
        raise RuntimeError("mine")

    async with Remit.open(tmp_path, agents=[look]) as remit:
        heard: list[LifecycleEvent] = []
        remit.on_event(raising)
        remit.on_event(heard.append)
        assert (await remit.delegate("shelf.look")).ok
    assert len(heard) == 2


async def test_the_iterator_gives_them_in_order_and_ends_with_the_remit(tmp_path: Path) -> None:
    async with Remit.open(tmp_path, agents=[look]) as remit:
        events = remit.happenings()
        await asyncio.gather(*(remit.delegate("shelf.look") for _ in range(3)))
        reading = asyncio.ensure_future(_all(events))
    found = await asyncio.wait_for(reading, 5)
    assert len(found) == 6
    assert events.lost == 0


async def _all(events: LifecycleEvents) -> list[LifecycleEvent]:
    return [one async for one in events]


async def test_an_iterator_that_nobody_reads_keeps_the_newest_only() -> None:
    bus = LifecycleBus()
    events = LifecycleEvents(bus, limit=2)
    for number in range(5):
        bus.publish(_event(f"sess_{number}"))
    events.close()
    assert [one.session_id for one in await _all(events)] == ["sess_3", "sess_4"]
    assert events.lost == 3


async def test_several_may_read_the_same_iterator_and_one_may_give_up() -> None:
    bus = LifecycleBus()
    events = bus.read()
    first, second = (asyncio.ensure_future(anext(events)) for _ in range(2))
    await asyncio.sleep(0)
    first.cancel()
    bus.publish(_event("sess_1"))
    assert (await asyncio.wait_for(second, 5)).session_id == "sess_1"


async def test_a_forgotten_iterator_is_not_listened_for() -> None:
    bus = LifecycleBus()
    events = bus.read()
    assert bus.has_listeners
    del events
    gc.collect()
    assert not bus.has_listeners


async def test_a_closed_remit_cannot_be_listened_to(tmp_path: Path) -> None:
    remit = Remit.open(tmp_path)
    with pytest.raises(Misused, match="not open"):
        remit.on_event(print)


async def test_metrics_are_of_what_is_on_record(tmp_path: Path) -> None:
    async with Remit.open(tmp_path, agents=[look, broken]) as remit:
        for name in ("shelf.look", "shelf.look", "broken"):
            await remit.delegate(name)
        found = await remit.metrics(since_seconds=600)
        assert (found.total, found.success.count, found.tokens) == (3, 2, 14)
        assert {one.of for one in found.alerts()} == {None, "broken"}
    async with Remit.open(tmp_path) as again:
        assert (await again.metrics()).total == 3
        assert (await again.metrics(since_seconds=-10)).total == 0


def _event(session_id: str) -> LifecycleEvent:
    return LifecycleEvent(
        kind=LifecycleKind.STARTED, at=0.0, session_id=session_id, root_id=session_id, parent_id=None, depth=1, target="a", operation=None,
        state="running",
    )  # fmt: skip
