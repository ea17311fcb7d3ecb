"""Programming errors in agents: tracebacks, return annotations, a missing `await`, invalid declarations."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from http_harness import http_harness

from remit import BlockingContext, Context, Misused, Remit, agent
from support import cli
from support.server import EVERYTHING, OWNER, Call, Delegations, Grants, Permission, Principal, Progress

LINES = Path(__file__).read_text().splitlines()


def line_with(text: str) -> int:
    return next(number for number, line in enumerate(LINES, 1) if text in line)


def boom() -> None:
    try:
        {}["missing"]
    except KeyError as error:
        raise ValueError("boom") from error


@agent("raises.inline")
async def raises_inline() -> None:
    boom()


@agent("raises.thread")
def raises_on_thread(ctx: BlockingContext) -> None:
    boom()


@agent("raises.process", isolation="process")
def raises_in_process() -> None:
    boom()


@agent("raises.async-process", isolation="process")
async def raises_in_async_process(ctx: Context) -> None:
    boom()


@agent("leaves")
def leaves() -> None:
    raise SystemExit(3)


@agent("asks")
async def asks(ctx: Context) -> str:
    return str((await ctx.delegate("raises.inline")).status)


@agent("count.inline")
async def count_inline(value: Any) -> list[int]:
    return value  # type: ignore[no-any-return]


@agent("count.thread")
def count_on_thread(value: Any) -> list[int]:
    return value  # type: ignore[no-any-return]


@agent("count.process", isolation="process")
def count_in_process(value: Any) -> list[int]:
    return value  # type: ignore[no-any-return]


@agent("forgets.inline")
async def forgets(ctx: Context) -> str:
    ctx.delegate("raises.inline")  # type: ignore[unused-coroutine] # line named by the test
    await ctx.checkpoint(1)
    return "done"


@agent("forgets.process", isolation="process")
async def forgets_in_process(ctx: Context) -> Any:
    return ctx.delegate("raises.inline")


@agent("awaits")
async def awaits(ctx: Context) -> list[Any]:
    """Every way to await a coroutine."""
    ways = [
        await ctx.delegate("fine"),
        await asyncio.create_task(ctx.delegate("fine")),
        await asyncio.wait_for(ctx.delegate("fine"), 30),
        *await asyncio.gather(ctx.delegate("fine"), ctx.delegate("fine")),
    ]
    async with asyncio.TaskGroup() as group:
        ways.append(await group.create_task(ctx.delegate("fine")))
    return [one.data for one in ways]


@agent("fine")
async def fine() -> int:
    return 1


AGENTS = [
    raises_inline, raises_on_thread, raises_in_process, raises_in_async_process, leaves, asks, count_inline, count_on_thread,
    count_in_process, forgets, forgets_in_process, awaits, fine,
]  # fmt: skip


async def test_exception_is_stored_with_the_frames_of_the_agent(tmp_path: Path) -> None:
    async with Remit.open(tmp_path, agents=AGENTS) as remit:
        for name in ("inline", "thread", "process", "async-process"):
            done = await remit.delegate(f"raises.{name}")
            (error,) = done.errors
            assert (error.code, done.status, done.stop_reason) == ("AGENT_RAISED", "failed", "finished")
            assert "ValueError: boom" in error.message
            assert f"(test_agent_errors.py:{line_with('raise ValueError')})" in error.message
            assert f"remit show {done.session_id} --trace" in error.recommendation
            assert "in boom" in done.traceback
            assert "KeyError: 'missing'" in done.traceback, "the cause is included"
            assert "src/remit" not in done.traceback
            assert (await remit.describe(done.session_id)).result == done, "the traceback is recorded"
            assert "traceback" not in done.to_dict()
        assert "SystemExit: 3" in (await remit.delegate("leaves")).traceback
        assert (await remit.delegate("fine")).traceback == ""
    entries = [entry for entry in remit.ledger.entries() if entry.context.get("agent") == "raises.process"]
    assert "in boom" in entries[0].stack_trace


async def test_show_prints_the_tracebacks_of_a_tree(tmp_path: Path) -> None:
    async with Remit.open(tmp_path, agents=AGENTS) as remit:
        done = await remit.delegate("asks")
        child = (await remit.tree(done.session_id))[1]
    page = await asyncio.to_thread(cli.run, "show", done.session_id, "--trace", cwd=tmp_path)
    assert f"raises.inline {child.session_id}" in page.stdout
    assert "    raise ValueError" in page.stdout
    plain = await asyncio.to_thread(cli.run, "show", done.session_id, cwd=tmp_path)
    assert "raise ValueError" not in plain.stdout
    document = await asyncio.to_thread(cli.run_json, "show", done.session_id, cwd=tmp_path)
    assert list(document["tracebacks"]) == [child.session_id]


async def test_value_is_checked_against_the_return_annotation(tmp_path: Path) -> None:
    async with Remit.open(tmp_path, agents=AGENTS) as remit:
        for name in ("inline", "thread", "process"):
            done = await remit.delegate(f"count.{name}", value=[1, "2"])
            assert (done.status, done.stop_reason, done.errors[0].code) == ("failed", "invalid_return", "VALIDATION_FAILED")
            assert done.errors[0].message == "data.1 must be a valid integer, not '2'"
            (saved,) = done.artifacts
            assert (tmp_path / saved.path).read_text() == "[1, '2']", "the original value is kept"
            assert (await remit.delegate(f"count.{name}", value=[1, 2])).data == [1, 2]


async def test_missing_await_is_an_error_that_names_the_line(tmp_path: Path) -> None:
    async with Remit.open(tmp_path, agents=AGENTS) as remit:
        for name, text in (("inline", "# line named by the test"), ("process", 'return ctx.delegate("raises.inline")')):
            done = await remit.delegate(f"forgets.{name}")
            assert (done.status, done.errors[0].code) == ("failed", "AGENT_RAISED")
            assert f"did not await ctx.delegate() at test_agent_errors.py:{line_with(text)}" in done.errors[0].message
            assert "ctx.delegate" in done.traceback
            assert len(await remit.tree(done.session_id)) == 1
        assert (await remit.delegate("awaits")).data == [1] * 6


def test_unknown_options_are_refused_with_a_suggestion(tmp_path: Path) -> None:
    with pytest.raises(Misused, match=r"Unknown option 'timout' of @agent\. Did you mean timeout"):
        agent("x", timout=5)  # type: ignore[call-overload]
    for text, parts in (
        ("@agent('x', isolaton='process')\ndef f(): ...", "Did you mean isolation?"),
        ("@agent\nasync def f(ctx: BlockingContext): ...", "Write ctx: Context."),
        ("@agent\ndef f(ctx: Context): ...", "Write ctx: BlockingContext."),
    ):
        folder = tmp_path / ".remit" / "agents"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "mine.py").write_text(f"from remit import BlockingContext, Context, agent\n{text}\n")
        (problem,) = cli.run_json("agents", cwd=tmp_path)["problems"]
        assert "mine.py (line 2)" in problem
        assert parts in problem


async def test_traceback_is_shown_only_to_the_owner_and_see_all(tmp_path: Path) -> None:
    async with http_harness(tmp_path, agents=[raises_inline]) as harness:
        whole = EVERYTHING - {Permission.RELAY}
        for name, permissions in (("operator", whole), ("stranger", whole - {Permission.SEE_ALL})):
            client = await harness.client(harness.token(name, permissions))
            started = (await client.post("/v1/tasks", params={"wait": 20}, json={"target": "raises", "operation": "inline"})).json()
            found = (await client.get(f"/v1/tasks/{started['taskId']}")).json()
            assert ("boom" in found.get("traceback", "")) is (name == "operator")
            assert "in boom" not in str(started)
            call = Call(principal=Principal(name=f"token:{name}", grants=Grants(permissions=permissions)), api="mcp")
            for caller, is_visible in ((call, name == "operator"), (Call(principal=OWNER, api="mcp"), True)):
                tools = Delegations(harness.service, 20.0)
                answer = await tools.call("delegation_status", {"session_id": started["taskId"]}, Progress(None, None), caller)  # type: ignore[arg-type]
                assert ("in boom" in str(answer.structured_content)) is is_visible
