"""Observability of a server: one trace across two processes, metrics and log."""

import asyncio
import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from serve_harness import project, serving

from collector import attributes, collecting
from remit import Remit, agent

GIVEN = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@agent("near")
async def near(ctx: Any) -> str:
    found = await ctx.delegate("far", parameters={"text": "hello"})
    return str(found.unwrap())


async def test_tree_in_two_processes_is_one_trace_with_metrics_and_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    far_root = project(tmp_path / "far")
    (tmp_path / "near").mkdir()
    (far_root / "remit.toml").write_text('[signals]\nlogs = "json"\n')
    variables = {"OTEL_SERVICE_NAME": "far"}
    with collecting() as collected, serving(far_root, environment={**variables, "OTEL_EXPORTER_OTLP_ENDPOINT": collected.url}) as server:
        settings = {
            "agents": {"far": {"a2a": server.at.http, "remote": "echo", "token_variable": "FAR_TOKEN"}},
            "signals": {"otlp_url": collected.url, "service_name": "near"},
        }
        monkeypatch.setenv("FAR_TOKEN", server.token)
        async with Remit.open(tmp_path / "near", agents=[near], settings=settings) as remit:
            assert (await remit.delegate("near")).unwrap() == "hello"
        with server.http() as http:
            begun = http.post(
                "/v1/tasks", params={"wait": 20}, json={"target": "slow", "parameters": {"seconds": 0}}, headers={"traceparent": GIVEN}
            ).json()
            assert begun["success"], begun
            assert http.get("/metrics", headers={"Authorization": "Bearer wrong"}).status_code == 401
            page = http.get("/metrics").text
        server.send_signal()
        code, output = await asyncio.to_thread(server.wait)
    assert code == 0, output
    check_trace(collected.spans)
    by_http = collected.span("invoke_agent slow")
    assert (by_http.trace_id.hex(), by_http.parent_span_id.hex()) == tuple(GIVEN.split("-")[1:3])
    assert attributes(by_http)["remit.door"] == "http"
    assert {resource["service.name"] for resource in collected.resources} == {"near", "far"}
    check_metrics(page)
    lines = [json.loads(line) for line in output.splitlines() if line.startswith("{")]
    ended = next(line for line in lines if line["message"] == "slow completed")
    assert (ended["session_id"], ended["trace_id"], ended["door"]) == (begun["taskId"], GIVEN.split("-")[1], "http")
    assert any(line.get("code") == "UNAUTHENTICATED" for line in lines)


def check_trace(spans: list[Any]) -> None:
    """near ► far (over gRPC) ► echo, in the other process."""
    chain = ["invoke_agent near", "invoke_agent far", "invoke_agent echo"]
    found = {span.name: span for span in spans if span.name in chain}
    assert sorted(found) == sorted(chain)
    assert len({span.trace_id for span in found.values()}) == 1
    for above, below in pairwise(chain):
        assert found[below].parent_span_id == found[above].span_id, (above, below)
    assert (found["invoke_agent far"].kind, found["invoke_agent echo"].kind) == (3, 2)  # client and server
    assert attributes(found["invoke_agent far"])["gen_ai.provider.name"] == "a2a"


def check_metrics(page: str) -> None:
    from prometheus_client.parser import text_string_to_metric_families

    samples = [one for family in text_string_to_metric_families(page) for one in family.samples]
    completed = {
        one.labels["target"]: one.value for one in samples if one.name == "delegation_total" and one.labels["state"] == "completed"
    }
    assert completed == {"echo": 1.0, "slow": 1.0}
    doors = {(one.labels["door"], one.labels["code"]): one.value for one in samples if one.name == "door_requests_total"}
    assert doors["http", "UNAUTHENTICATED"] == 1.0
