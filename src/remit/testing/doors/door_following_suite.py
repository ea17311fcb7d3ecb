"""Checks of the doors: streams and polling, idempotency keys, who runs next, and lists. See `door_suite`."""

import asyncio
import secrets
from collections.abc import Awaitable, Callable

from remit.testing.doors.agents import folder, marks
from remit.testing.doors.client import DoorClient, DoorStage, Said, asked, done, ended, fault, heard
from remit.testing.engine_samples import until

Check = Callable[[DoorStage], Awaitable[None]]
FOLLOWING_CHECKS: list[Check] = []


def _promise(check: Check) -> Check:
    FOLLOWING_CHECKS.append(check)
    return check


def _go(stage: DoorStage, mark: str) -> None:
    folder(stage.root).mkdir(parents=True, exist_ok=True)
    (folder(stage.root) / mark).touch()


async def _talked(stage: DoorStage, door: DoorClient, listeners: int = 1) -> tuple[str, list[list[Said]]]:
    """Streamed by so many from before its first word to its end."""
    mark = secrets.token_hex(4)
    task_id = await door.execute(asked("talks", mark=mark))
    listening = [asyncio.Event() for _ in range(listeners)]

    async def listen(is_there: asyncio.Event) -> list[Said]:
        found = []
        async for said in door.stream(task_id):
            found.append(said)
            is_there.set()
        return found

    async with asyncio.timeout(20):
        tasks = [asyncio.create_task(listen(one)) for one in listening]
        await asyncio.gather(*(one.wait() for one in listening))
        _go(stage, mark)
        return task_id, [await task for task in tasks]


# ---- streams


@_promise
async def a_stream_tells_everything_in_order_and_ends_as_polling_does(stage: DoorStage) -> None:
    """S5.7."""
    door = await stage.client()
    task_id, (told,) = await _talked(stage, door)
    assert told[-1].kind == "end"
    assert [said.kind for said in told].count("end") == 1
    assert told[-1].seen == await door.status(task_id)
    assert told[-1].seen is not None
    assert told[-1].seen.data == {"chunks": 6}
    if door.traits.tells_data:
        data = [said.value for said in told if said.kind == "data"]
        assert data == [{"number": number, "words": f"größer {number} 𝄞"} for number in range(6)]
    words = [said.value for said in told if said.kind == "progress"]
    assert any("listening" in text for text in words), words
    assert any("said" in text for text in words), words
    numbers = [said.number for said in told if said.number is not None]
    assert numbers == sorted(set(numbers))
    assert len(numbers) == len(told) or not door.traits.numbers_chunks


@_promise
async def everybody_who_follows_hears_the_same(stage: DoorStage) -> None:
    door = await stage.client()
    _, told = await _talked(stage, door, listeners=3)
    ends = [[said.value for said in one if said.kind == "data"] + [one[-1].seen] for one in told]
    assert ends[0] == ends[1] == ends[2]


@_promise
async def a_stream_is_taken_up_where_it_was_left(stage: DoorStage) -> None:
    door = await stage.client()
    task_id, (told,) = await _talked(stage, door)
    if door.traits.numbers_chunks:
        assert await heard(door, task_id) == told
        for at, said in enumerate(told[:-1]):
            assert said.number is not None
            assert await heard(door, task_id, said.number) == told[at + 1 :]
    else:
        assert (await heard(door, task_id))[-1] == told[-1]


@_promise
async def a_stream_left_in_the_middle_is_taken_up_while_it_runs(stage: DoorStage) -> None:
    door, mark = await stage.client(), secrets.token_hex(4)
    task_id = await door.execute(asked("talks", mark=mark, chunks=8))
    _go(stage, mark)
    first: list[Said] = []
    async with asyncio.timeout(20):
        async for said in door.stream(task_id):
            first.append(said)
            if said.kind == "data" or not door.traits.tells_data:
                break
        last = max((said.number or 0 for said in first), default=0)
        rest = await heard(await stage.client(), task_id, last)
    if door.traits.numbers_chunks:
        data = [said.value["number"] for said in (*first, *rest) if said.kind == "data"]
        assert data == list(range(8))
        numbers = [said.number for said in (*first, *rest)]
        assert numbers == sorted({number for number in numbers if number is not None})
    elif door.traits.tells_data and any(said.kind == "data" for said in rest):
        assert [said.value["number"] for said in rest if said.kind == "data"] == list(range(8))  # told again from the beginning
    assert rest[-1].seen == await door.status(task_id)


@_promise
async def what_does_not_succeed_ends_its_stream_with_the_same_object(stage: DoorStage) -> None:
    door = await stage.client()
    for arguments in (asked("breaks"), asked("writes", _timeout=300), asked("forbidden", mark="none")):
        task_id = await door.execute(arguments)
        told = await heard(door, task_id)
        assert told[-1].seen == await ended(door, task_id)


# ---- keys


@_promise
async def a_key_used_twice_is_one_run(stage: DoorStage) -> None:
    door, mark, key = await stage.client(), secrets.token_hex(4), secrets.token_hex(8)
    arguments = asked("hangs", mark=mark, seconds=0.3, _key=key)
    first, second = await asyncio.gather(door.execute(arguments), door.execute(arguments))
    third = await (await stage.client()).execute(arguments)
    assert first == second == third
    seen = await ended(door, first)
    assert await door.execute(arguments) == first
    assert marks(stage.root, mark).count("begun") == 1
    assert await door.status(first) == seen
    assert (await fault(door.execute(asked("hangs", mark="another", _key=key)))).code == "INVALID_PARAMETERS"


@_promise
async def a_key_is_its_callers_own(stage: DoorStage) -> None:
    ann, bob, mark, key = await stage.client(), await stage.client("bob"), secrets.token_hex(4), secrets.token_hex(8)
    if not ann.traits.has_principals:
        return
    arguments = asked("echo", mark=mark, _key=key)
    hers, his = await ann.execute(arguments), await bob.execute(arguments)
    assert hers != his
    await ended(ann, hers)
    await ended(bob, his)
    assert len(marks(stage.root, mark)) == 2


# ---- who runs next


@_promise
async def the_more_urgent_runs_first(stage: DoorStage) -> None:
    """S5.6: when slots are full."""
    door, mark = await stage.client(), secrets.token_hex(4)
    task_ids = [await door.execute(asked("narrow", mark=mark, name="first"))]
    await until(lambda: bool(marks(stage.root, mark)))
    for priority in ("low", "normal", "critical", "high"):
        task_ids += [await door.execute(asked("narrow", mark=mark, name=priority, _priority=priority))]
    assert (await door.status(task_ids[1])).shown == door.traits.shows["queued"]
    _go(stage, f"{mark}.go")
    for task_id in task_ids:
        await ended(door, task_id)
    assert marks(stage.root, mark) == ["first", "critical", "high", "normal", "low"]


# ---- lists


@_promise
async def lists_hold_ones_own_work_by_filter_and_page(stage: DoorStage) -> None:
    door, mark, session = await stage.client(), secrets.token_hex(4), secrets.token_hex(4)
    running = await door.execute(asked("hangs", mark=mark, _session=session))
    await until(lambda: bool(marks(stage.root, mark)))
    assert running in (await door.list()).task_ids
    task_ids = [running]
    for number in range(4):
        task_ids += [(await done(door, "echo" if number % 2 else "text.count", **_given(number), _session=session)).task_id]
    if door.traits.lists_ended:
        await _lists(door, session, task_ids)
    else:
        assert not set(task_ids[1:]) & set((await door.list()).task_ids)
    await door.cancel(running)
    if door.traits.lists_ended:
        assert (await door.list(session=session, shown=door.traits.shows["cancelled"])).task_ids == [running]
    else:
        assert running not in (await door.list()).task_ids


def _given(number: int) -> dict[str, str]:
    return {"value": str(number)} if number % 2 else {"text": "a b"}


async def _lists(door: DoorClient, session: str, task_ids: list[str]) -> None:
    """The newest first, each once, over pages of any size."""
    shows = door.traits.shows
    assert (await door.list(session=session)).task_ids == task_ids[::-1]
    assert (await door.list(session=f"{session}x")).task_ids == []
    assert (await door.list(session=session, shown=shows["running"])).task_ids == task_ids[:1]
    assert (await door.list(session=session, shown=shows["completed"])).task_ids == task_ids[:0:-1]
    if door.traits.lists_by_agent:
        assert (await door.list(session=session, agent="echo")).task_ids == [task_ids[4], task_ids[2]]
    for size in (1, 2, 5):
        found, page = [], None
        for _ in range(6):
            answer = await door.list(session=session, size=size, page=page)
            assert len(answer.task_ids) <= size
            found += answer.task_ids
            page = answer.next_page
            if page is None:
                break
        assert found == task_ids[::-1], size
