"""Events for every step of the flow, to whoever listens for them (S4, S5.9; issue 7 item 6)."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from remit import Remit, agent
from remit.core.errors import ErrorInfo, Misused
from remit.core.events import Step
from remit.core.lifecycle import EVERYTHING, LifecycleEvent, LifecycleKind
from remit.core.tracing import parse, span_id_of


@agent("talker")
async def talker(ctx: Any) -> str:
    ctx.progress("half of it", 0.5)
    ctx.emit("words")
    ctx.spend(tokens=3)
    (ctx.scratch / "note.md").write_text("x")
    ctx.artifact(ctx.scratch / "note.md", "report")
    return "done"


@agent("sleeper")
async def sleeper() -> str:
    await asyncio.sleep(60)
    return "never"


@agent("caller")
async def caller(ctx: Any) -> str:
    await ctx.delegate("talker")
    return "done"


def steps(heard: list[LifecycleEvent], session_id: str) -> list[str]:
    return [one.body["step"] for one in heard if one.kind is LifecycleKind.STEP and one.session_id == session_id]


async def test_every_step_and_word_is_told_in_order_to_whoever_listens_for_them(tmp_path: Path) -> None:
    async with Remit.open(tmp_path, agents=[talker, caller]) as remit:
        heard: list[LifecycleEvent] = []
        remit.on_event(heard.append, EVERYTHING)
        root = await remit.delegate("talker")
        nested = await remit.delegate("caller")
        child = (await remit.children(nested.session_id))[0]
    assert steps(heard, root.session_id) == [str(step) for step in Step]
    assert steps(heard, child.session_id) == [str(step) for step in Step][4:]  # the first four are a root's
    told = [str(one.kind).removeprefix("delegation.") for one in heard if one.session_id == root.session_id]
    first, last = told.index("started"), told.index("completed")
    assert told[:first] == ["step"] * 7
    assert told[first + 1 : first + 5] == ["progress", "data", "spent", "artifact"]
    assert set(told[first + 5 : last]) == {"step"}
    assert last == len(told) - 1
    said = next(one for one in heard if one.kind is LifecycleKind.PROGRESS)
    assert said.to_dict()["body"] == {"message": "half of it", "fraction": 0.5}


async def test_one_that_waits_tells_its_steps_before_it_runs_and_a_cancelled_one_says_so(tmp_path: Path) -> None:
    async with Remit.open(tmp_path, agents=[sleeper], slots=1) as remit:
        heard: list[LifecycleEvent] = []
        remit.on_event(heard.append, EVERYTHING)
        running = await remit.start("sleeper")
        waiting = await remit.start("sleeper")
        assert steps(heard, waiting.session_id)[-1] == str(Step.REGISTER_DELEGATION)
        await remit.cancel(running.session_id)
        await remit.cancel(waiting.session_id)
    states = [one.body["state"] for one in heard if one.kind is LifecycleKind.CANCEL and one.session_id == running.session_id]
    assert states == ["requested", "stopped"]
    assert steps(heard, waiting.session_id)[-1] == str(Step.RETURN_TO_USER)


async def test_a_refusal_tells_the_steps_it_came_to(tmp_path: Path) -> None:
    async with Remit.open(tmp_path, agents=[]) as remit:
        heard: list[LifecycleEvent] = []
        remit.on_event(heard.append, [LifecycleKind.STEP, LifecycleKind.FAILED])
        refused = await remit.delegate("nobody")
    told = steps(heard, refused.session_id)
    assert told[0] == str(Step.ANALYZE_REQUEST)
    assert told[-1] == str(Step.RETURN_TO_USER)
    assert str(Step.ROUTE_TO_AGENT) not in told
    assert heard[-1].state == "refused"


async def test_whoever_wants_starts_and_ends_only_hears_nothing_else(tmp_path: Path) -> None:
    async with Remit.open(tmp_path, agents=[talker]) as remit:
        few: list[LifecycleEvent] = []
        every: list[LifecycleEvent] = []
        remit.on_event(few.append)
        stop = remit.on_event(every.append, EVERYTHING)
        stop()
        await remit.delegate("talker")
        with pytest.raises(Misused, match=r"delegation\.step"):
            remit.on_event(few.append, ["delegation.jump"])  # type: ignore[list-item]
    assert [one.kind for one in few] == [LifecycleKind.STARTED, LifecycleKind.COMPLETED]
    assert not every


async def test_who_came_to_a_door_is_told(tmp_path: Path) -> None:
    async with Remit.open(tmp_path) as remit:
        heard: list[LifecycleEvent] = []
        remit.note_visit("http", "token:ci")  # nobody listens
        remit.on_event(heard.append, [LifecycleKind.ADMITTED, LifecycleKind.TURNED_AWAY])
        remit.note_visit("http", "token:ci")
        error = ErrorInfo(type="permission", message="no", code="UNAUTHENTICATED", recoverable=False, recommendation="ask")
        remit.note_visit("grpc", None, error)
    assert [(str(one.kind), one.door, one.principal, one.success) for one in heard] == [
        ("door.admitted", "http", "token:ci", True),
        ("door.refused", "grpc", None, False),
    ]


async def test_an_agents_process_knows_its_span(tmp_path: Path) -> None:
    async with Remit.open(tmp_path, agents=[echo]) as remit:
        returned = await remit.delegate("echo")
    given = parse(returned.data)
    assert given is not None
    assert given.span_id == span_id_of(returned.session_id)


@agent("echo")
async def echo(ctx: Any) -> str:
    return str(ctx.environment()["TRACEPARENT"])
