"""What every door must do, as checks that the author of one can run over it. Needs no test framework.

    from remit.testing.doors.door_suite import DOOR_CHECKS

    @pytest.mark.parametrize("check", DOOR_CHECKS, ids=lambda check: check.__name__)
    async def test_door(check, stage):
        await check(stage)

`stage` serves a project (`client.DoorStage`). A check leaves nothing running, so one server does for all of them. Here: how a task ends;
the others stand in `door_asking_suite` (faults, refusals, whose work is whose) and `door_following_suite` (streams, keys, lists).
"""

import asyncio
import secrets
from collections.abc import Awaitable, Callable
from typing import Any

from remit.testing.doors.agents import marks
from remit.testing.doors.client import DoorClient, DoorStage, Seen, asked, done, ended, fault
from remit.testing.doors.door_asking_suite import ASKING_CHECKS
from remit.testing.doors.door_following_suite import FOLLOWING_CHECKS
from remit.testing.engine_samples import until

Check = Callable[[DoorStage], Awaitable[None]]
DOOR_CHECKS: list[Check] = [*ASKING_CHECKS, *FOLLOWING_CHECKS]


def _promise(check: Check) -> Check:
    DOOR_CHECKS.append(check)
    return check


def _is(door: DoorClient, seen: Seen, outcome: str, status: str, stop_reason: str, code: str | None = None) -> None:
    told = (seen.shown, seen.status, seen.stop_reason, seen.code)
    assert told == (door.traits.shows[outcome], status, stop_reason, code), (told, outcome)


@_promise
async def what_is_completed_has_its_data_and_its_words(stage: DoorStage) -> None:
    door = await stage.client()
    seen = await done(door, "text", _operation="count", text="drei kleine Wörter")
    _is(door, seen, "completed", "completed", "finished")
    assert seen.data == 3
    seen = await done(door, "ends", how="completed")
    _is(door, seen, "completed", "completed", "finished")
    assert (seen.summary, seen.data) == ("It ended completed. That is all.", {"how": "completed"})


@_promise
async def what_ends_otherwise_says_so_and_keeps_what_was_done(stage: DoorStage) -> None:
    door = await stage.client()
    for how in ("partial", "failed", "blocked"):
        seen = await done(door, "ends", how=how)
        _is(door, seen, how, how, "finished", "BUILD_ERROR")
        assert (seen.summary, seen.data) == (f"It ended {how}. That is all.", {"how": how})
    seen = await done(door, "breaks")
    assert (seen.shown, seen.status) == (door.traits.shows["failed"], "failed")
    assert "it broke" in seen.summary


@_promise
async def what_runs_out_of_time_hands_in_what_there_is(stage: DoorStage) -> None:
    """S2.6: partial, never failed, with the artifacts and chunks so far."""
    door = await stage.client()
    seen = await done(door, "writes", _timeout=500)
    _is(door, seen, "timeout", "partial", "deadline", "TIMEOUT")
    assert [path.rpartition("/")[2] for path in seen.artifacts] == ["half.md"], seen
    assert seen.data["chunks"] == [{"pages": 1}]


@_promise
async def what_is_cancelled_is_really_stopped_when_the_answer_comes(stage: DoorStage) -> None:
    door, mark = await stage.client(), secrets.token_hex(4)
    task_id = await door.execute(asked("hangs", mark=mark))
    await until(lambda: "beat" in marks(stage.root, mark))
    assert (await door.status(task_id)).shown == door.traits.shows["running"]
    seen = await door.cancel(task_id, "not wanted")
    left = marks(stage.root, mark)
    _is(door, seen, "cancelled", "partial", "cancelled", "CANCELLED")
    assert left[-1] == "left"
    await asyncio.sleep(0.1)
    assert marks(stage.root, mark) == left
    _is(door, await door.status(task_id), "cancelled", "partial", "cancelled", "CANCELLED")


@_promise
async def cancelling_ends_everything_below(stage: DoorStage) -> None:
    door, mark = await stage.client(), secrets.token_hex(4)
    task_id = await door.execute(asked("asks", inner="hangs", parameters={"mark": mark}))
    await until(lambda: "beat" in marks(stage.root, mark))
    await door.cancel(task_id)
    assert marks(stage.root, mark)[-1] == "left"


@_promise
async def cancelling_what_has_ended_changes_nothing(stage: DoorStage) -> None:
    door = await stage.client()
    before = await done(door, "echo", value=1)
    if door.traits.cancels_ended:
        assert await door.cancel(before.task_id) == before
    else:
        assert (await fault(door.cancel(before.task_id))).status == "TaskNotCancelableError"
    assert await door.status(before.task_id) == before


@_promise
async def a_client_that_leaves_ends_nothing(stage: DoorStage) -> None:
    """In the middle of a stream, and in the middle of asking."""
    door, mark = await stage.client(), secrets.token_hex(4)
    task_id = await door.execute(asked("hangs", mark=mark, seconds=0.5))
    stream = door.stream(task_id)
    await anext(stream)
    await stream.aclose()  # type: ignore[attr-defined]  # all of them are generators
    waiting = asyncio.ensure_future(anext(door.stream(task_id)))
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.wait([waiting])
    seen = await ended(await stage.client(), task_id)
    _is(door, seen, "completed", "completed", "finished")
    assert marks(stage.root, mark)[-1] == "ended"


@_promise
async def large_results_come_whole(stage: DoorStage) -> None:
    door = await stage.client()
    seen = await done(door, "large", rows=3000)
    assert seen.data == {"rows": [{"number": number, "words": "wörter " * 12} for number in range(3000)]}


@_promise
async def odd_values_come_back_as_they_went(stage: DoorStage) -> None:
    door = await stage.client()
    odd: dict[str, Any] = {
        "": "empty name", "ключ": ["", " ", "\t\n", "\u0000", "\u2028", "𝄞", "é", "{}", "null"], "nothing": None,
        "numbers": [0, -1, 1.5, 1e300, 2**53, -(2**53), 5e-324], "yes": [True, False], "deep": [[[[{"a": [{}]}]]]], "empty": [{}, []],
    }  # fmt: skip
    assert (await done(door, "echo", value=odd)).data["value"] == odd
    plain: list[Any] = [None, 0, 2.25, "", "ü", True, [], {}]
    for scalar in plain:
        assert (await done(door, "echo", value=scalar)).data["value"] == scalar
    beyond = (await done(door, "echo", value=2**60 + 1)).data["value"]
    assert beyond == (2**60 + 1 if door.traits.exact_integers else str(2**60 + 1))
