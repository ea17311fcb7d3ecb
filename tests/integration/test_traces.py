"""OpenTelemetry traces: one tree is one trace, across processes and crashes; with a real collector on loopback."""

import asyncio
import os
import socket
from pathlib import Path
from typing import Any

import pytest

from collector import Collected, attributes, collecting
from remit import Remit, agent
from support.cli import run_process

GIVEN = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@agent("shelf.look")
async def look(ctx: Any, title: str = "") -> str:
    ctx.spend(tokens=7, cost=0.5)
    return "books"


@agent("reader")
async def reader(ctx: Any) -> str:
    await ctx.delegate("shelf.look", title="Middlemarch")
    return "done"


@agent("broken")
async def broken() -> str:
    raise ValueError("the drawer with the letters is locked")


@agent("sleeper")
async def sleeper() -> str:
    await asyncio.sleep(60)
    return "never"


@agent("apart", isolation="process")
def apart(ctx: Any) -> str:
    ctx.delegate("shelf.look")
    return os.environ["TRACEPARENT"]


def open_project(root: Path, url: str, *agents: Any) -> Remit:
    return Remit.open(root, agents=agents, settings={"signals": {"otlp_url": url}})


def is_child(collected: Collected, child: str, parent: str) -> bool:
    below, above = collected.span(child), collected.span(parent)
    return bool(below.parent_span_id == above.span_id and below.trace_id == above.trace_id)


async def test_tree_is_one_trace_with_spans_below_their_callers(tmp_path: Path) -> None:
    with collecting() as collected:
        async with open_project(tmp_path, collected.url, look, reader, apart) as remit:
            returned = await remit.delegate("reader")
            from_process = await remit.delegate("apart")
        first = [span for span in collected.spans if attributes(span)["remit.root_id"] == returned.session_id]
        second = [span for span in collected.spans if attributes(span)["remit.root_id"] == from_process.session_id]
    assert sorted(span.name for span in first) == ["execute_tool shelf.look", "invoke_agent reader"]
    assert len({span.trace_id for span in first}) == 1
    collected.spans = first
    assert collected.span("invoke_agent reader").parent_span_id == b""
    assert is_child(collected, "execute_tool shelf.look", "invoke_agent reader")
    tool = attributes(collected.span("execute_tool shelf.look"))
    assert (tool["gen_ai.operation.name"], tool["gen_ai.tool.name"], tool["remit.state"]) == ("execute_tool", "shelf.look", "completed")
    assert (tool["remit.tokens"], tool["remit.cost"], tool["remit.depth"]) == (7, 0.5, 2)
    agent_span = attributes(collected.span("invoke_agent reader"))
    assert (agent_span["gen_ai.agent.id"], agent_span["remit.session_id"]) == ("reader", returned.session_id)
    assert tool["remit.path"] == ["orchestrator", "reader", "shelf.look"]
    assert "Middlemarch" not in str(first)
    steps = [event.name for event in collected.span("invoke_agent reader").events]
    assert (steps[0], steps[-1], len(steps)) == ("AnalyzeRequest", "ReturnToUser", 13)
    points = {attributes(one)["target"]: one.as_int for one in collected.metrics["delegation.tokens"].sum.data_points}
    assert points == {"shelf": 14, "reader": 0, "apart": 0}
    assert sum(one.count for one in collected.metrics["delegation.latency"].histogram.data_points) == 4
    # The process agent has its span in TRACEPARENT, and its delegation is a child of it.
    collected.spans = second
    assert is_child(collected, "execute_tool shelf.look", "invoke_agent apart")
    assert from_process.data.split("-")[2] == collected.span("invoke_agent apart").span_id.hex()
    assert {resource["service.name"] for resource in collected.resources} == {"remit"}


async def test_failed_span_is_an_error_and_a_cancelled_one_is_not(tmp_path: Path) -> None:
    with collecting() as collected:
        async with open_project(tmp_path, collected.url, broken, sleeper) as remit:
            await remit.delegate("broken")
            await remit.delegate("unknown")
            handle = await remit.start("sleeper")
            await remit.cancel(handle.session_id)
        failed, refused, cancelled = (collected.span(f"invoke_agent {name}") for name in ("broken", "unknown", "sleeper"))
    assert (failed.status.code, attributes(failed)["remit.state"]) == (2, "failed")
    assert "letters" not in str(failed)
    assert failed.status.message == attributes(failed)["error.type"]
    assert (refused.status.code, attributes(refused)["remit.state"]) == (2, "refused")
    assert (cancelled.status.code, attributes(cancelled)["error.type"]) == (0, "CANCELLED")


def test_command_inside_a_trace_continues_it(tmp_path: Path) -> None:
    """The parent comes from TRACEPARENT, the collector from the variable of OpenTelemetry."""
    (tmp_path / ".remit" / "agents").mkdir(parents=True)
    (tmp_path / ".remit" / "agents" / "shelf.py").write_text(
        "from remit import agent\n\n@agent('shelf')\nasync def shelf(ctx):\n    return 'books'\n"
    )
    with collecting() as collected:
        variables = {**os.environ, "TRACEPARENT": GIVEN, "OTEL_EXPORTER_OTLP_ENDPOINT": collected.url, "OTEL_SERVICE_NAME": "library"}
        ran = run_process("delegate", "shelf", cwd=tmp_path, env=variables)
        assert ran.code == 0, ran.stderr
        tree = collected.span("invoke_agent shelf")
    assert tree.trace_id.hex() == GIVEN.split("-")[1]
    assert tree.parent_span_id.hex() == GIVEN.split("-")[2]
    assert {resource["service.name"] for resource in collected.resources} == {"library"}


async def test_model_requests_are_spans_below_their_delegation(tmp_path: Path) -> None:
    from model_harness import model_project

    from remit.testing import Fail, Say

    with collecting() as collected:
        async with model_project(tmp_path, [Say("One word."), *[Fail(401)] * 3], settings={"signals": {"otlp_url": collected.url}}) as (
            remit,
            _,
        ):
            await remit.delegate("thinker", task="think")  # prose is not a valid return: it is asked once more
        good, bad = [span for span in collected.spans if span.name == "chat scripted"]
        above = collected.span("invoke_agent thinker")
    assert good.parent_span_id == bad.parent_span_id == above.span_id
    assert attributes(good)["gen_ai.usage.input_tokens"] > 0
    assert (good.status.code, bad.status.code, attributes(bad)["error.type"]) == (1, 2, "AGENT_UNAVAILABLE")
    assert attributes(good)["gen_ai.request.model"] == "scripted"


@pytest.mark.parametrize("how", ["refuses", "silent"])
async def test_dead_collector_delays_no_delegation_and_no_close(tmp_path: Path, how: str) -> None:
    with socket.socket() as listening:  # bound: the port stays free of other servers
        listening.bind(("127.0.0.1", 0))
        if how == "silent":
            listening.listen()
        url = f"http://127.0.0.1:{listening.getsockname()[1]}"
        async with asyncio.timeout(25):  # the SDK itself would wait half a minute for a dead collector
            async with open_project(tmp_path, url, look) as remit:
                for _ in range(20):
                    assert (await remit.delegate("shelf.look")).ok
