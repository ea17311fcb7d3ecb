"""Checks for every API of a server through its own protocol's client: outcomes are the same everywhere.

`tests/conformance/test_apis.py` runs `API_CHECKS` over every API. A check leaves nothing running, so all of them share one server.
The `over_…` modules are the clients; `traits` lists the intended differences between protocols.
"""

import asyncio
import secrets
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from remit.server.service import TABLE
from support.apis.agents import folder, marks
from support.apis.client import ApiClient, ApiHarness, Said, Seen, Standing, asked, done, ended, fault, heard
from support.engine_samples import until

Check = Callable[[ApiHarness], Awaitable[None]]
API_CHECKS: list[Check] = []
NOBODYS = "sess_1700000000_zzzzzz"


def _promise(check: Check) -> Check:
    API_CHECKS.append(check)
    return check


async def _is_told(api: ApiClient, code: str, waiting: Any) -> None:
    """Check the error code and its protocol status in the shared table (`serve.statuses`)."""
    told = await fault(waiting)
    assert told.code == code, told
    if api.traits.statuses is not None:
        assert told.status == getattr(TABLE[code], api.traits.statuses), told


# ---- invalid requests


@_promise
async def invalid_request_is_refused_before_anything_runs(harness: ApiHarness) -> None:
    """Target, operation, parameters and other arguments."""
    api = await harness.client()
    wrong = [
        ("INVALID_TARGET", asked("nobody")),
        ("INVALID_PARAMETERS" if api.traits.judges_shape_first else "INVALID_TARGET", asked("nobody", _operation="sing", _timeout=-5)),
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
            await _is_told(api, code, api.execute(arguments))
        except AssertionError as error:
            raise AssertionError(f"{arguments}: {error}") from error


@_promise
async def agents_are_listed_and_without_a_target_any_that_can_does_it(harness: ApiHarness) -> None:
    api = await harness.client()
    names = list(await api.agents())
    assert {"echo", "text.count", "hangs"} <= set(names)
    assert len(names) == len(set(names))
    if not api.traits.chooses:
        return
    arguments = {"operation": "count", "parameters": {"text": "a b"}}
    assert (await ended(api, await api.execute(arguments))).data == 2
    await _is_told(api, "INVALID_OPERATION", api.execute({"operation": "sing", "parameters": {}}))


# ---- compositions


@_promise
async def several_delegations_are_composed_in_one_request(harness: ApiHarness) -> None:
    api = await harness.client()
    steps = [
        {"call": "echo", "parameters": {"value": ["a b", "c"]}, "id": "texts"},
        {"each": "text.count", "over": "texts#/value", "into": "text"},
        {"parallel": [{"call": "echo", "parameters": {"value": {"$": "1"}}}, {"call": "ends", "parameters": {"how": "failed"}}], "need": 1},
    ]
    seen = await done(api, "compose", _operation="run", sequence=steps)
    assert (seen.status, seen.data[1], seen.data[2][0]["value"], seen.data[2][1]) == ("completed", [2, 1], [2, 1], None), seen
    assert seen.data[0]["depth"] == seen.data[2][0]["depth"] == 1


@_promise
async def a_composition_is_refused_before_anything_runs(harness: ApiHarness) -> None:
    api, mark = await harness.client(), f"composed-{secrets.token_hex(4)}"
    before = {"call": "echo", "parameters": {"mark": mark}}
    wrong: list[tuple[str, dict[str, Any]]] = [
        ("INVALID_TARGET", {"call": "nobody"}),
        ("INVALID_PARAMETERS", {"call": "text.count"}),
        ("INVALID_PARAMETERS", {"call": "echo", "parameters": {"value": {"$": "3"}}}),
        ("INVALID_PARAMETERS", {"call": "echo", "accept": ["true"]}),
        ("INVALID_PARAMETERS", {"call": "echo", "key": "k"}),
    ]
    for code, step in wrong:
        await _is_told(api, code, api.execute(asked("compose", _operation="run", sequence=[before, step])))
    assert marks(harness.root, mark) == []
    denied = await done(api, "compose", _operation="run", sequence=[{"call": "forbidden", "parameters": {"mark": mark}}])
    assert (denied.status, denied.code, marks(harness.root, mark)) == ("failed", "POLICY_DENIED", []), denied


# ---- refusals


@_promise
async def a_refusal_runs_nothing_and_is_an_outcome(harness: ApiHarness) -> None:
    """By the policy; the refusal is recorded and can be found by its id."""
    api, mark = await harness.client(), secrets.token_hex(4)
    seen = await done(api, "forbidden", mark=mark)
    assert (seen.shown, seen.stop_reason, seen.code) == (api.traits.shows["refused"], "refused", "POLICY_DENIED")
    assert marks(harness.root, mark) == []
    assert await api.status(seen.task_id) == seen


@_promise
async def a_cycle_and_a_budget_that_is_used_up_are_refused(harness: ApiHarness) -> None:
    api, mark = await harness.client(), secrets.token_hex(4)
    arguments = asked("asks", inner="echo", parameters={"mark": mark}, _budget={"delegations": 1})
    seen = await ended(api, await api.execute(arguments))
    assert seen.data is not None, seen
    assert seen.data["codes"] == ["BUDGET_EXCEEDED"]
    assert marks(harness.root, mark) == []
    none = await done(api, "echo", mark=mark, _budget={"delegations": 0})
    assert (none.shown, none.stop_reason, none.code) == (api.traits.shows["refused"], "refused", "BUDGET_EXCEEDED")
    assert marks(harness.root, mark) == []
    assert (await done(api, "asks", inner="asks", parameters={"inner": "echo"})).data["codes"] == ["CYCLE_DETECTED"]


@_promise
async def a_remit_that_calls_counts_its_depth_and_path_on(harness: ApiHarness) -> None:
    """Only for callers with the `relay` grant."""
    if not (await harness.client()).traits.relays:
        return
    api = await harness.client("relay", Standing(depth=1, path=("far", "away")))
    told = (await done(api, "echo")).data
    assert (told["depth"], told["path"]) == (2, ["far", "away", "echo"])
    deep = await harness.client("relay", Standing(depth=3, path=("a", "b", "c", "d")))
    seen = await done(deep, "echo")
    assert (seen.shown, seen.stop_reason, seen.code) == (deep.traits.shows["refused"], "refused", "MAX_DEPTH_EXCEEDED")
    round_again = await harness.client("relay", Standing(depth=1, path=("far", "echo")))
    seen = await done(round_again, "echo")
    assert (seen.shown, seen.stop_reason, seen.code) == (round_again.traits.shows["refused"], "refused", "CYCLE_DETECTED")
    anybody = await harness.client("ann", Standing(depth=3, path=("a", "b", "echo")))
    assert (await done(anybody, "echo")).data["depth"] == 1


@_promise
async def a_caller_that_has_less_time_left_is_the_deadline(harness: ApiHarness) -> None:
    """A deadline only shrinks on the way down."""
    if not (await harness.client()).traits.relays:
        return
    api = await harness.client("relay", Standing(path=("far",), seconds_left=0.6))
    seen = await done(api, "writes")
    assert (seen.shown, seen.stop_reason, seen.code) == (api.traits.shows["timeout"], "deadline", "TIMEOUT")


# ---- isolation between callers


@_promise
async def unknown_tasks_and_those_of_other_callers_are_not_found(harness: ApiHarness) -> None:
    ann, bob, mark = await harness.client(), await harness.client("bob"), secrets.token_hex(4)
    for asking in (bob.status, bob.cancel, partial(heard, bob)):
        await _is_told(bob, "TASK_NOT_FOUND", asking(NOBODYS))
    task_id = await ann.execute(asked("hangs", mark=mark))
    await until(lambda: "beat" in marks(harness.root, mark))
    for one in (task_id, (await done(ann, "echo")).task_id):
        theirs, nobodys = await fault(bob.status(one)), await fault(bob.status(NOBODYS))
        assert (theirs.code, theirs.status, str(theirs).replace(one, NOBODYS)) == (nobodys.code, nobodys.status, str(nobodys))
        await _is_told(bob, "TASK_NOT_FOUND", bob.cancel(one))
        await _is_told(bob, "TASK_NOT_FOUND", heard(bob, one))
        assert one not in (await bob.list()).task_ids
    assert not (await ann.status(task_id)).has_ended
    assert (await ann.cancel(task_id)).shown == ann.traits.shows["cancelled"]


def _go(harness: ApiHarness, mark: str) -> None:
    folder(harness.root).mkdir(parents=True, exist_ok=True)
    (folder(harness.root) / mark).touch()


async def _talked(harness: ApiHarness, api: ApiClient, listeners: int = 1) -> tuple[str, list[list[Said]]]:
    """Stream a task from before its first chunk to its end, with several listeners."""
    mark = secrets.token_hex(4)
    task_id = await api.execute(asked("talks", mark=mark))
    listening = [asyncio.Event() for _ in range(listeners)]

    async def listen(is_there: asyncio.Event) -> list[Said]:
        found = []
        async for said in api.stream(task_id):
            found.append(said)
            is_there.set()
        return found

    async with asyncio.timeout(20):
        tasks = [asyncio.create_task(listen(one)) for one in listening]
        await asyncio.gather(*(one.wait() for one in listening))
        _go(harness, mark)
        return task_id, [await task for task in tasks]


# ---- streams


@_promise
async def a_stream_tells_everything_in_order_and_ends_as_polling_does(harness: ApiHarness) -> None:
    api = await harness.client()
    task_id, (told,) = await _talked(harness, api)
    assert told[-1].kind == "end"
    assert [said.kind for said in told].count("end") == 1
    assert told[-1].seen == await api.status(task_id)
    assert told[-1].seen is not None
    assert told[-1].seen.data == {"chunks": 6}
    if api.traits.tells_data:
        data = [said.value for said in told if said.kind == "data"]
        assert data == [{"number": number, "words": f"größer {number} 𝄞"} for number in range(6)]
    words = [said.value for said in told if said.kind == "progress"]
    assert any("listening" in text for text in words), words
    assert any("said" in text for text in words), words
    numbers = [said.number for said in told if said.number is not None]
    assert numbers == sorted(set(numbers))
    assert len(numbers) == len(told) or not api.traits.numbers_chunks


@_promise
async def a_stream_resumes_after_its_last_event(harness: ApiHarness) -> None:
    api = await harness.client()
    task_id, (told,) = await _talked(harness, api)
    if api.traits.numbers_chunks:
        assert await heard(api, task_id) == told
        for at, said in enumerate(told[:-1]):
            assert said.number is not None
            assert await heard(api, task_id, said.number) == told[at + 1 :]
    else:
        assert (await heard(api, task_id))[-1] == told[-1]


@_promise
async def a_broken_stream_resumes_while_its_task_runs(harness: ApiHarness) -> None:
    api, mark = await harness.client(), secrets.token_hex(4)
    task_id = await api.execute(asked("talks", mark=mark, chunks=8))
    _go(harness, mark)
    first: list[Said] = []
    async with asyncio.timeout(20):
        async for said in api.stream(task_id):
            first.append(said)
            if said.kind == "data" or not api.traits.tells_data:
                break
        last = max((said.number or 0 for said in first), default=0)
        rest = await heard(await harness.client(), task_id, last)
    if api.traits.numbers_chunks:
        data = [said.value["number"] for said in (*first, *rest) if said.kind == "data"]
        assert data == list(range(8))
        numbers = [said.number for said in (*first, *rest)]
        assert numbers == sorted({number for number in numbers if number is not None})
    elif api.traits.tells_data and any(said.kind == "data" for said in rest):
        assert [said.value["number"] for said in rest if said.kind == "data"] == list(range(8))  # replayed from the beginning
    assert rest[-1].seen == await api.status(task_id)


@_promise
async def the_stream_of_a_failed_task_ends_with_the_same_object(harness: ApiHarness) -> None:
    api = await harness.client()
    for arguments in (asked("breaks"), asked("writes", _timeout=300), asked("forbidden", mark="none")):
        task_id = await api.execute(arguments)
        told = await heard(api, task_id)
        assert told[-1].seen == await ended(api, task_id)


# ---- idempotency keys


@_promise
async def a_key_used_twice_is_one_run(harness: ApiHarness) -> None:
    api, mark, key = await harness.client(), secrets.token_hex(4), secrets.token_hex(8)
    arguments = asked("hangs", mark=mark, seconds=0.3, _key=key)
    first, second = await asyncio.gather(api.execute(arguments), api.execute(arguments))
    third = await (await harness.client()).execute(arguments)
    assert first == second == third
    seen = await ended(api, first)
    assert await api.execute(arguments) == first
    assert marks(harness.root, mark).count("begun") == 1
    assert await api.status(first) == seen
    assert (await fault(api.execute(asked("hangs", mark="another", _key=key)))).code == "INVALID_PARAMETERS"


# ---- priorities


@_promise
async def the_more_urgent_runs_first(harness: ApiHarness) -> None:
    """When all slots are taken."""
    api, mark = await harness.client(), secrets.token_hex(4)
    task_ids = [await api.execute(asked("narrow", mark=mark, name="first"))]
    await until(lambda: bool(marks(harness.root, mark)))
    for priority in ("low", "normal", "critical", "high"):
        task_ids += [await api.execute(asked("narrow", mark=mark, name=priority, _priority=priority))]
    assert (await api.status(task_ids[1])).shown == api.traits.shows["queued"]
    _go(harness, f"{mark}.go")
    for task_id in task_ids:
        await ended(api, task_id)
    assert marks(harness.root, mark) == ["first", "critical", "high", "normal", "low"]


# ---- lists


@_promise
async def lists_hold_ones_own_work_by_filter_and_page(harness: ApiHarness) -> None:
    api, mark, session = await harness.client(), secrets.token_hex(4), secrets.token_hex(4)
    running = await api.execute(asked("hangs", mark=mark, _session=session))
    await until(lambda: bool(marks(harness.root, mark)))
    assert running in (await api.list()).task_ids
    task_ids = [running]
    for number in range(4):
        task_ids += [(await done(api, "echo" if number % 2 else "text.count", **_given(number), _session=session)).task_id]
    if api.traits.lists_ended:
        await _lists(api, session, task_ids)
    else:
        assert not set(task_ids[1:]) & set((await api.list()).task_ids)
    await api.cancel(running)
    if api.traits.lists_ended:
        assert (await api.list(session=session, shown=api.traits.shows["cancelled"])).task_ids == [running]
    else:
        assert running not in (await api.list()).task_ids


def _given(number: int) -> dict[str, str]:
    return {"value": str(number)} if number % 2 else {"text": "a b"}


async def _lists(api: ApiClient, session: str, task_ids: list[str]) -> None:
    """Newest first, each once, with any page size."""
    shows = api.traits.shows
    assert (await api.list(session=session)).task_ids == task_ids[::-1]
    assert (await api.list(session=f"{session}x")).task_ids == []
    assert (await api.list(session=session, shown=shows["running"])).task_ids == task_ids[:1]
    assert (await api.list(session=session, shown=shows["completed"])).task_ids == task_ids[:0:-1]
    if api.traits.lists_by_agent:
        assert (await api.list(session=session, agent="echo")).task_ids == [task_ids[4], task_ids[2]]
    for size in (1, 2, 5):
        found, page = [], None
        for _ in range(6):
            answer = await api.list(session=session, size=size, page=page)
            assert len(answer.task_ids) <= size
            found += answer.task_ids
            page = answer.next_page
            if page is None:
                break
        assert found == task_ids[::-1], size


def _is(api: ApiClient, seen: Seen, outcome: str, status: str, stop_reason: str, code: str | None = None) -> None:
    told = (seen.shown, seen.status, seen.stop_reason, seen.code)
    assert told == (api.traits.shows[outcome], status, stop_reason, code), (told, outcome)


@_promise
async def a_completed_task_has_its_data_and_summary(harness: ApiHarness) -> None:
    api = await harness.client()
    seen = await done(api, "text", _operation="count", text="drei kleine Wörter")
    _is(api, seen, "completed", "completed", "finished")
    assert seen.data == 3
    seen = await done(api, "ends", how="completed")
    _is(api, seen, "completed", "completed", "finished")
    assert (seen.summary, seen.data) == ("It ended completed. That is all.", {"how": "completed"})


@_promise
async def failed_and_cancelled_tasks_name_the_reason_and_keep_their_work(harness: ApiHarness) -> None:
    api = await harness.client()
    for how in ("partial", "failed", "blocked"):
        seen = await done(api, "ends", how=how)
        _is(api, seen, how, how, "finished", "BUILD_ERROR")
        assert (seen.summary, seen.data) == (f"It ended {how}. That is all.", {"how": how})
    seen = await done(api, "breaks")
    assert (seen.shown, seen.status) == (api.traits.shows["failed"], "failed")
    assert "it broke" in seen.summary


@_promise
async def a_task_that_times_out_returns_partial_work(harness: ApiHarness) -> None:
    """Partial, never failed, with the artifacts and chunks so far."""
    api = await harness.client()
    seen = await done(api, "writes", _timeout=500)
    _is(api, seen, "timeout", "partial", "deadline", "TIMEOUT")
    assert [path.rpartition("/")[2] for path in seen.artifacts] == ["half.md"], seen
    assert seen.data["chunks"] == [{"pages": 1}]


@_promise
async def a_cancelled_task_has_stopped_when_the_answer_arrives(harness: ApiHarness) -> None:
    api, mark = await harness.client(), secrets.token_hex(4)
    task_id = await api.execute(asked("hangs", mark=mark))
    await until(lambda: "beat" in marks(harness.root, mark))
    assert (await api.status(task_id)).shown == api.traits.shows["running"]
    seen = await api.cancel(task_id, "not wanted")
    left = marks(harness.root, mark)
    _is(api, seen, "cancelled", "partial", "cancelled", "CANCELLED")
    assert left[-1] == "left"
    await asyncio.sleep(0.1)
    assert marks(harness.root, mark) == left
    _is(api, await api.status(task_id), "cancelled", "partial", "cancelled", "CANCELLED")


@_promise
async def cancelling_what_has_ended_changes_nothing(harness: ApiHarness) -> None:
    api = await harness.client()
    before = await done(api, "echo", value=1)
    if api.traits.cancels_ended:
        assert await api.cancel(before.task_id) == before
    else:
        assert (await fault(api.cancel(before.task_id))).status == "TaskNotCancelableError"
    assert await api.status(before.task_id) == before


@_promise
async def a_client_that_leaves_ends_nothing(harness: ApiHarness) -> None:
    """In the middle of a stream and in the middle of a request."""
    api, mark = await harness.client(), secrets.token_hex(4)
    task_id = await api.execute(asked("hangs", mark=mark, seconds=0.5))
    stream = api.stream(task_id)
    await anext(stream)
    await stream.aclose()  # type: ignore[attr-defined]  # all of them are generators
    waiting = asyncio.ensure_future(anext(api.stream(task_id)))
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.wait([waiting])
    seen = await ended(await harness.client(), task_id)
    _is(api, seen, "completed", "completed", "finished")
    assert marks(harness.root, mark)[-1] == "ended"


@_promise
async def large_results_come_whole(harness: ApiHarness) -> None:
    api = await harness.client()
    seen = await done(api, "large", rows=3000)
    assert seen.data == {"rows": [{"number": number, "words": "wörter " * 12} for number in range(3000)]}


@_promise
async def unusual_values_are_returned_unchanged(harness: ApiHarness) -> None:
    api = await harness.client()
    odd: dict[str, Any] = {
        "": "empty name", "ключ": ["", " ", "\t\n", "\u0000", "\u2028", "𝄞", "é", "{}", "null"], "nothing": None,
        "numbers": [0, -1, 1.5, 1e300, 2**53, -(2**53), 5e-324], "yes": [True, False], "deep": [[[[{"a": [{}]}]]]], "empty": [{}, []],
    }  # fmt: skip
    assert (await done(api, "echo", value=odd)).data["value"] == odd
    plain: list[Any] = [None, 0, 2.25, "", "ü", True, [], {}]
    for scalar in plain:
        assert (await done(api, "echo", value=scalar)).data["value"] == scalar
    beyond = (await done(api, "echo", value=2**60 + 1)).data["value"]
    assert beyond == (2**60 + 1 if api.traits.exact_integers else str(2**60 + 1))
