"""`resume=`: a stopped delegation continues with its checkpoint and its finished children."""

import asyncio
from pathlib import Path

import pytest

from remit import Context, Remit, Status, StopReason, agent

RAN: list[int] = []
HANGS_AT: int | None = None


@agent("one")
async def one(number: int) -> int:
    RAN.append(number)
    return number * number


@agent("squares", timeout=0.5, resumable=True)
async def squares(ctx: Context, upto: int) -> list[int]:
    found = []
    for number in range(upto):
        found.append((await ctx.delegate("one", number=number)).data)
        await ctx.checkpoint(number)
        if number == HANGS_AT:
            await asyncio.sleep(60)
    return found


@agent("prints", isolation="process")
def prints() -> str:
    print("hello from inside")
    return "Done. Twice."


async def test_resumed_delegation_does_not_repeat_finished_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    RAN.clear()
    async with Remit.open(tmp_path, agents=[one, squares]) as remit:
        monkeypatch.setitem(globals(), "HANGS_AT", 2)
        stopped = await remit.delegate("squares", upto=5)
        monkeypatch.undo()
        assert stopped.stop_reason is StopReason.DEADLINE
        assert f"resume={stopped.session_id}" in stopped.errors[0].recommendation
        done = await remit.delegate("squares", upto=5, resume=stopped.session_id)
        assert done.data == [0, 1, 4, 9, 16]
        assert RAN == [0, 1, 2, 3, 4]
        again = await remit.delegate("squares", upto=5, resume=done.session_id)
        assert again.data == done.data
        assert RAN == [0, 1, 2, 3, 4]


async def test_invalid_resume_is_refused_with_the_reason(tmp_path: Path) -> None:
    async with Remit.open(tmp_path, agents=[one, squares]) as remit:
        first = await remit.delegate("one", number=1)
        other = await remit.delegate("squares", upto=1, resume=first.session_id)
        assert other.stop_reason is StopReason.REFUSED
        assert "was handed to one" in other.errors[0].message
        unknown = await remit.delegate("one", number=1, resume="sess_1700000000_abcdef")
        assert "There is no delegation" in unknown.errors[0].message
        nonsense = await remit.delegate("one", number=1, resume="yesterday")
        assert nonsense.errors[0].code == "INVALID_PARAMETERS"
        refused = await remit.delegate("one", wrong=1)
        again = await remit.delegate("one", number=1, resume=refused.session_id)
        assert "was refused" in again.errors[0].message
        assert [r.status for r in await asyncio.gather(remit.delegate("one", number=2, resume=first.session_id))] == [Status.COMPLETED]


async def test_output_of_a_process_agent_is_an_event(tmp_path: Path) -> None:
    async with Remit.open(tmp_path, agents=[prints]) as remit:
        done = await remit.delegate("prints")
        messages = [event.body.get("message", "") for event in await remit.events(done.session_id)]
        assert any("hello from inside" in message for message in messages)


@agent("turns", timeout=5, resumable=True)
async def turns(ctx: Context, upto: int) -> list[int]:
    seen = [(await ctx.delegate("counter")).data for _ in range(upto)]
    if upto < 3:
        await ctx.checkpoint(seen)
    return seen


@agent("counter")
async def counter() -> int:
    RAN.append(len(RAN) + 1)
    return len(RAN)


async def test_chain_of_resumed_runs_replays_in_order(tmp_path: Path) -> None:
    RAN.clear()
    async with Remit.open(tmp_path, agents=[turns, counter]) as remit:
        first = await remit.delegate("turns", upto=1)
        second = await remit.delegate("turns", upto=2, resume=first.session_id)
        third = await remit.delegate("turns", upto=4, resume=second.session_id)
    assert (first.data, second.data, third.data) == ([1], [1, 2], [1, 2, 3, 4])


async def test_resumed_children_count_against_the_budget(tmp_path: Path) -> None:
    async with Remit.open(tmp_path, agents=[one, caller_of_many]) as remit:
        earlier = await remit.delegate("one", number=1)
        done = await remit.delegate("caller-of-many", resume_id=earlier.session_id, budget={"delegations": 4})
    assert done.data == 3


@agent("caller-of-many")
async def caller_of_many(ctx: Context, resume_id: str) -> int:
    returns = await asyncio.gather(*(ctx.delegate("one", number=n, resume=resume_id) for n in range(20)))
    return sum(one.ok for one in returns)
