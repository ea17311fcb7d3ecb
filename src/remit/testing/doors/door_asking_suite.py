"""Checks of the doors: requests that are wrong, delegations that are refused, and whose work is whose. See `door_suite`."""

import secrets
import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from remit.serve.statuses import TABLE
from remit.testing.doors.agents import marks
from remit.testing.doors.client import DoorClient, DoorStage, Standing, asked, done, ended, fault, heard
from remit.testing.engine_samples import until

Check = Callable[[DoorStage], Awaitable[None]]
ASKING_CHECKS: list[Check] = []
NOBODYS = "sess_1700000000_zzzzzz"


def _promise(check: Check) -> Check:
    ASKING_CHECKS.append(check)
    return check


async def _is_told(door: DoorClient, code: str, waiting: Any) -> None:
    """By our code, and by the status of the one table (`serve.statuses`)."""
    told = await fault(waiting)
    assert told.code == code, told
    if door.traits.statuses is not None:
        assert told.status == getattr(TABLE[code], door.traits.statuses), told


# ---- wrong requests


@_promise
async def what_is_wrong_with_a_request_is_told_before_anything_runs(stage: DoorStage) -> None:
    """S5.3, in its order: target, operation, parameters, and the rest."""
    door = await stage.client()
    wrong = [
        ("INVALID_TARGET", asked("nobody")),
        ("INVALID_PARAMETERS" if door.traits.judges_shape_first else "INVALID_TARGET", asked("nobody", _operation="sing", _timeout=-5)),
        ("INVALID_OPERATION", asked("text", _operation="sing", text="a")),
        ("INVALID_OPERATION", asked("text", text="a")),
        ("INVALID_PARAMETERS", asked("text", _operation="count")),
        ("INVALID_PARAMETERS", asked("text", _operation="count", text=5)),
        ("INVALID_PARAMETERS", asked("text", _operation="count", text="a", unknown=1)),
        ("INVALID_PARAMETERS", asked("echo", _timeout=10**10)),
        ("INVALID_PARAMETERS", asked("echo", _timeout=-5)),
        ("INVALID_PARAMETERS", asked("echo", _budget={"delegations": -1})),
        ("INVALID_PARAMETERS", asked("echo", _budget={"wishes": 3})),
    ]
    for code, arguments in wrong:
        try:
            await _is_told(door, code, door.execute(arguments))
        except AssertionError as error:
            raise AssertionError(f"{arguments}: {error}") from error


@_promise
async def names_come_in_either_spelling(stage: DoorStage) -> None:
    """S5.2."""
    door = await stage.client()
    for name in ("minLength", "min_length"):
        assert (await done(door, "text", _operation="count", text="a bcd ef", **{name: 2})).data == 2


@_promise
async def without_a_target_any_agent_that_can_does_it(stage: DoorStage) -> None:
    door = await stage.client()
    if not door.traits.chooses:
        return
    arguments = {"operation": "count", "parameters": {"text": "a b"}}
    assert (await ended(door, await door.execute(arguments))).data == 2
    await _is_told(door, "INVALID_OPERATION", door.execute({"operation": "sing", "parameters": {}}))


@_promise
async def agents_are_told_by_name(stage: DoorStage) -> None:
    names = list(await (await stage.client()).agents())
    assert {"echo", "text.count", "hangs"} <= set(names)
    assert len(names) == len(set(names))


# ---- refusals


@_promise
async def a_refusal_runs_nothing_and_is_an_outcome(stage: DoorStage) -> None:
    """By the policy: S5.10; it is on record, found again by its id."""
    door, mark = await stage.client(), secrets.token_hex(4)
    seen = await done(door, "forbidden", mark=mark)
    assert (seen.shown, seen.stop_reason, seen.code) == (door.traits.shows["refused"], "refused", "POLICY_DENIED")
    assert marks(stage.root, mark) == []
    assert await door.status(seen.task_id) == seen


@_promise
async def a_budget_that_is_used_up_refuses(stage: DoorStage) -> None:
    door, mark = await stage.client(), secrets.token_hex(4)
    arguments = asked("asks", inner="echo", parameters={"mark": mark}, _budget={"delegations": 1})
    seen = await ended(door, await door.execute(arguments))
    assert seen.data is not None, seen
    assert seen.data["codes"] == ["BUDGET_EXCEEDED"]
    assert marks(stage.root, mark) == []
    none = await done(door, "echo", mark=mark, _budget={"delegations": 0})
    assert (none.shown, none.stop_reason, none.code) == (door.traits.shows["refused"], "refused", "BUDGET_EXCEEDED")
    assert marks(stage.root, mark) == []


@_promise
async def a_cycle_is_refused(stage: DoorStage) -> None:
    door = await stage.client()
    seen = await done(door, "asks", inner="asks", parameters={"inner": "echo"})
    assert seen.data["codes"] == ["CYCLE_DETECTED"]


@_promise
async def a_remit_that_calls_counts_its_depth_and_path_on(stage: DoorStage) -> None:
    """S1.3, S1.4 across machines: only for those that were granted it."""
    if not (await stage.client()).traits.relays:
        return
    door = await stage.client("relay", Standing(depth=1, path=("far", "away")))
    told = (await done(door, "echo")).data
    assert (told["depth"], told["path"]) == (2, ["far", "away", "echo"])
    deep = await stage.client("relay", Standing(depth=3, path=("a", "b", "c", "d")))
    seen = await done(deep, "echo")
    assert (seen.shown, seen.stop_reason, seen.code) == (deep.traits.shows["refused"], "refused", "MAX_DEPTH_EXCEEDED")
    round_again = await stage.client("relay", Standing(depth=1, path=("far", "echo")))
    seen = await done(round_again, "echo")
    assert (seen.shown, seen.stop_reason, seen.code) == (round_again.traits.shows["refused"], "refused", "CYCLE_DETECTED")
    anybody = await stage.client("ann", Standing(depth=3, path=("a", "b", "echo")))
    assert (await done(anybody, "echo")).data["depth"] == 1


@_promise
async def a_caller_that_has_less_time_left_is_the_deadline(stage: DoorStage) -> None:
    """S2.3: it only shrinks on the way down."""
    if not (await stage.client()).traits.relays:
        return
    door = await stage.client("relay", Standing(path=("far",), seconds_left=0.6))
    began = time.monotonic()
    seen = await done(door, "writes")
    assert (seen.shown, seen.stop_reason, seen.code) == (door.traits.shows["timeout"], "deadline", "TIMEOUT")
    assert time.monotonic() - began < 10


# ---- whose work is whose


@_promise
async def an_unknown_task_is_not_found(stage: DoorStage) -> None:
    door = await stage.client()
    for asking in (door.status, door.cancel, partial(heard, door)):
        await _is_told(door, "TASK_NOT_FOUND", asking(NOBODYS))


@_promise
async def somebody_elses_task_is_as_if_it_were_not_there(stage: DoorStage) -> None:
    ann, bob, mark = await stage.client(), await stage.client("bob"), secrets.token_hex(4)
    if not ann.traits.has_principals:
        return
    task_id = await ann.execute(asked("hangs", mark=mark))
    await until(lambda: "beat" in marks(stage.root, mark))
    for one in (task_id, (await done(ann, "echo")).task_id):
        theirs, nobodys = await fault(bob.status(one)), await fault(bob.status(NOBODYS))
        assert (theirs.code, theirs.status, str(theirs).replace(one, NOBODYS)) == (nobodys.code, nobodys.status, str(nobodys))
        await _is_told(bob, "TASK_NOT_FOUND", bob.cancel(one))
        await _is_told(bob, "TASK_NOT_FOUND", heard(bob, one))
        assert one not in (await bob.list()).task_ids
    assert not (await ann.status(task_id)).has_ended
    assert (await ann.cancel(task_id)).shown == ann.traits.shows["cancelled"]
