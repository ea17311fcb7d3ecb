"""Promises of every `Engine` about the result cache: what is reused, what never is, and that identical concurrent calls run once."""

import asyncio
from pathlib import Path
from typing import Any

from remit import Context, Effect, Misused, State, StopReason, agent
from remit.testing import Scripted, answer, fail, wait
from support.engine_samples import OpenRemit, code_of, durable, promise, raised, until

READING: dict[str, Any] = {"effects": (Effect.READ,), "cache_seconds": 3600.0}
WRITING: dict[str, Any] = {"effects": (Effect.WRITE,)}


@promise
async def a_cached_result_is_a_delegation_of_its_own_that_ran_nothing(open_remit: OpenRemit, root: Path) -> None:
    reader = Scripted("reader", answer({"n": 1}), answer({"n": 2}), **READING)
    async with open_remit(root, [reader]) as remit:
        first = await remit.delegate("reader", path="a")
        second = await remit.delegate("reader", path="a")
        other = await remit.delegate("reader", path="b")
        assert (first.data, second.data, other.data) == ({"n": 1}, {"n": 1}, {"n": 2})
        assert second.session_id != first.session_id
        assert second.metadata.extra["cached_from"] == first.session_id
        record = await remit.describe(second.session_id)
        assert (record.state, record.cached_from, record.tokens, record.result) == (State.COMPLETED, first.session_id, 0, second)
        assert (await remit.describe(first.session_id)).cached_from is None
        handle = await remit.start("reader", path="a")
        assert (await handle.result()).metadata.extra["cached_from"] == first.session_id
    assert len(reader.calls) == 2


@promise
@durable
async def a_cached_result_outlives_its_process(open_remit: OpenRemit, root: Path) -> None:
    reader = Scripted("reader", answer(1), **READING)
    async with open_remit(root, [reader]) as remit:
        first = await remit.delegate("reader")
    async with open_remit(root, [reader]) as remit:
        assert (await remit.delegate("reader")).metadata.extra["cached_from"] == first.session_id
        assert [record.session_id for record in await remit.cached()] == [first.session_id]
        assert await remit.clear_cache() == 1
        await remit.delegate("reader")
    assert len(reader.calls) == 2


@promise
async def identical_calls_at_once_run_once(open_remit: OpenRemit, root: Path) -> None:
    go = asyncio.Event()
    reader = Scripted("reader", wait(go, answer("once")), **READING)
    async with open_remit(root, [reader]) as remit:
        calls = [asyncio.create_task(remit.delegate("reader", n=1)) for _ in range(8)]
        await reader.called.wait()
        await asyncio.sleep(0.02)
        go.set()
        returns = await asyncio.gather(*calls)
        assert {one.data for one in returns} == {"once"}
        assert len({one.session_id for one in returns}) == 8
        assert sum("cached_from" in one.metadata.extra for one in returns) == 7
    assert len(reader.calls) == 1


@promise
async def failures_and_stopped_runs_are_not_cached(open_remit: OpenRemit, root: Path) -> None:
    reader = Scripted("reader", fail("no"), wait(asyncio.Event()), answer("done"), **READING)
    async with open_remit(root, [reader]) as remit:
        assert not (await remit.delegate("reader")).ok
        seconds = 0.1
        while len(reader.calls) < 2:  # a worker on a busy machine may get it only after its deadline
            assert (await remit.delegate("reader", timeout=seconds)).stop_reason is StopReason.DEADLINE
            seconds *= 2
        assert [(await remit.delegate("reader")).data for _ in range(2)] == ["done", "done"]
    assert len(reader.calls) == 3


@promise
async def a_delegation_that_may_write_empties_the_cache(open_remit: OpenRemit, root: Path) -> None:
    reader = Scripted("reader", **READING)
    others = [Scripted("writer", **WRITING), Scripted("unknown"), Scripted("looker", effects=(Effect.NETWORK,))]
    async with open_remit(root, [reader, *others]) as remit:
        await remit.delegate("reader")
        for name, runs in (("writer", 2), ("unknown", 3), ("looker", 3)):
            await remit.delegate(name)
            await remit.delegate("reader")
            assert len(reader.calls) == runs, name


@promise
async def nothing_is_used_or_kept_while_a_writer_is_alive(open_remit: OpenRemit, root: Path) -> None:
    go = asyncio.Event()
    reader, writer = Scripted("reader", **READING), Scripted("writer", wait(go), **WRITING)
    async with open_remit(root, [reader, writer]) as remit:
        await remit.delegate("reader")
        handle = await remit.start("writer")
        await writer.called.wait()
        await remit.delegate("reader")
        await remit.delegate("reader")
        assert len(reader.calls) == 3
        go.set()
        await handle.result()
        await remit.delegate("reader")
        assert len(reader.calls) == 4
        await remit.delegate("reader")
    assert len(reader.calls) == 4


@promise
async def the_content_of_the_files_that_are_read_decides(open_remit: OpenRemit, root: Path) -> None:
    during: list[str] = []

    @agent("reader", cache="1h", reads=("paths",), effects=("read",))
    async def reader(ctx: Context, paths: list[str]) -> list[str]:
        found = [(ctx.workspace / path).read_text() for path in paths if (ctx.workspace / path).is_file()]
        if during:
            (root / "a").write_text(during.pop())
        return found

    async def read(*paths: str) -> Any:
        result = await remit.delegate("reader", paths=list(paths))
        return result.data, "cached_from" in result.metadata.extra

    async with open_remit(root, [reader]) as remit:
        (root / "a").write_text("1")
        assert [await read("a"), await read("a")] == [(["1"], False), (["1"], True)]
        (root / "a").write_text("2")
        assert [await read("a"), await read("a")] == [(["2"], False), (["2"], True)]
        (root / "a").write_text("1")
        assert await read("a") == (["1"], True)
        during.append("4")
        (root / "a").write_text("3")
        assert await read("a") == (["3"], False)
        (root / "a").write_text("3")
        assert await read("a") == (["3"], False), "the file changed while it was read"
        (root / "folder").mkdir()
        assert [await read("folder"), await read("folder")] == [([], False), ([], True)]
        (root / "folder" / "new").write_text("")
        assert await read("folder") == ([], False)
        assert [await read("../outside"), await read("../outside")] == [([], False), ([], False)]


@promise
async def artifacts_are_hashed_again(open_remit: OpenRemit, root: Path) -> None:
    runs: list[int] = []

    @agent("reporter", cache="1h", effects=("read",), workspace="scratch")
    async def reporter(ctx: Context) -> str:
        runs.append(1)
        report = ctx.scratch / "report.md"
        report.write_text("report")
        ctx.artifact(report)
        return "done"

    async with open_remit(root, [reporter]) as remit:
        first = await remit.delegate("reporter")
        second = await remit.delegate("reporter")
        assert second.artifacts == first.artifacts
        assert len(runs) == 1
        (root / first.artifacts[0].path).write_text("forged")
        await remit.delegate("reporter")
        assert len(runs) == 2


@promise
async def a_caller_decides_for_itself(open_remit: OpenRemit, root: Path) -> None:
    reader = Scripted("reader", *(answer(n) for n in range(9)), **READING)
    plain = Scripted("plain", answer("a"), answer("b"), effects=(Effect.READ,))
    async with open_remit(root, [reader, plain, Scripted("writer", **WRITING)]) as remit:
        assert [(await remit.delegate("reader", cache=how)).data for how in (None, "off", None, "refresh", None)] == [0, 1, 0, 2, 2]
        assert [(await remit.delegate("plain", cache=how)).data for how in ("1h", 60, None)] == ["a", "a", "b"]
        for agent_name, how in (("writer", "1h"), ("plain", "refresh"), ("reader", "sometimes"), ("reader", -1)):
            assert code_of(await remit.delegate(agent_name, cache=how)) == "INVALID_PARAMETERS", (agent_name, how)
        assert code_of(await remit.delegate("reader", key="cache:reader:0:0")) == "INVALID_PARAMETERS"


@promise
async def calls_with_keys_acceptance_or_secrets_are_not_cached(open_remit: OpenRemit, root: Path) -> None:
    reader = Scripted("reader", **READING)
    async with open_remit(root, [reader], accept_in="host") as remit:
        for asked in ({"key": "k1"}, {"key": "k2"}, {"accept": ["true"]}, {"accept": ["true"]}, {"password": "hunter22"}):
            await remit.delegate("reader", **asked)
        await remit.delegate("reader", password="hunter22")
    assert len(reader.calls) == 6


@promise
async def those_that_waited_for_a_call_that_was_cancelled_run_it_once(open_remit: OpenRemit, root: Path) -> None:
    go = asyncio.Event()
    reader = Scripted("reader", wait(go, answer(1)), wait(go, answer(2)), wait(go, answer(3)), **READING)
    async with open_remit(root, [reader]) as remit:
        left = asyncio.create_task(remit.delegate("reader"))
        await reader.called.wait()
        waiting = [asyncio.create_task(remit.delegate("reader")) for _ in range(3)]
        await asyncio.sleep(0.02)
        left.cancel()
        await until(lambda: len(reader.calls) == 2)
        await asyncio.sleep(0.05)
        go.set()
        assert [(await one).data for one in waiting] == [2, 2, 2]
    assert len(reader.calls) == 2


@promise
async def only_agents_that_only_read_can_be_cached(open_remit: OpenRemit, root: Path) -> None:
    async def declared(**options: Any) -> None:
        agent("x", cache="1h", **options)(_x)

    for options in ({}, {"effects": ("read", "write")}, {"effects": ("execute",)}):
        assert "only read" in (await raised(Misused, declared(**options))).message
    assert "which are not its parameters" in (await raised(Misused, declared(effects=("read",), reads=("q",)))).message


async def _x(path: str) -> str:
    return path
