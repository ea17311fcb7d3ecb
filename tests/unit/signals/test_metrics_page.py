"""Metrics in the Prometheus format, and the alert rules."""

import asyncio
import re
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from remit import CallerInfo, Refused, Remit, State, agent
from remit.core.delegation import ORIGIN, Origin
from remit.core.metrics import METRICS
from remit.runtime.telemetry.metrics import OTHERS, prometheus_page
from remit.server.http.api import metrics_routes
from remit.server.tokens import Grants, Permission, Principal

RULES = Path(__file__).parents[3] / "docs" / "alerts" / "remit.rules.yml"


@agent("shelf.look")
async def look(ctx: Any, fail: bool = False) -> str:
    ctx.spend(tokens=5)
    if fail:
        raise ValueError("no")
    return "books"


@agent("waits")
async def waits() -> str:
    await asyncio.sleep(60)
    return ""


@pytest.fixture
async def remit(tmp_path: Path) -> AsyncIterator[Remit]:
    async with Remit.open(tmp_path, agents=[look, waits], slots=1) as opened:
        yield opened


Page = Callable[[], tuple[bytes, str]]


def samples(page: Page) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    from prometheus_client.parser import text_string_to_metric_families

    body, content_type = page()
    assert content_type.startswith("text/plain")
    families = text_string_to_metric_families(body.decode())
    return {(one.name, tuple(sorted(one.labels.items()))): one.value for family in families for one in family.samples}


def total(found: dict[tuple[str, tuple[tuple[str, str], ...]], float], name: str, **labels: str) -> float:
    return sum(value for (of, given), value in found.items() if of == name and labels.items() <= dict(given).items())


async def test_prometheus_page_has_the_counts(remit: Remit) -> None:
    page = prometheus_page(remit.engine, remit.directory.find)
    for fail in (False, False, True):
        await remit.delegate("shelf.look", fail=fail)
    running = await remit.start("waits")
    queued = await remit.start("waits")
    found = samples(page)
    assert total(found, "delegation_total", target="shelf", operation="look", state="completed", principal="orchestrator") == 2
    assert total(found, "delegation_total", state="failed") == 1
    assert (
        "delegation_total",
        tuple(sorted({"target": "waits", "operation": "", "state": "timeout", "principal": "orchestrator"}.items())),
    ) in found
    assert total(found, "delegation_tokens_total", target="shelf") == 15
    assert (total(found, "delegation_running", target="waits"), total(found, "delegation_queued", target="waits")) == (1, 1)
    assert total(found, "delegation_latency_seconds_bucket", le="+Inf") == total(found, "delegation_latency_seconds_count") == 3
    assert total(found, "delegation_latency_seconds_bucket", le="30.0") == 3
    await remit.cancel(queued.session_id)
    await remit.cancel(running.session_id)
    assert total(samples(page), "delegation_running") == 0


async def test_label_values_are_bounded_for_any_request(remit: Remit) -> None:
    page = prometheus_page(remit.engine, remit.directory.find)
    for number in range(5):
        await remit.delegate(f"invented{number}")
    ORIGIN.set(Origin(caller_info=CallerInfo("token:alice", "http", "talk 7")))
    await remit.delegate("shelf.look")
    ORIGIN.set(Origin(caller_info=CallerInfo("mallory's own\n# TYPE x", "http")))
    await remit.delegate("shelf.look")
    ORIGIN.set(None)
    found = samples(page)
    assert total(found, "delegation_total", target=OTHERS, state="refused") == 5
    assert {dict(labels).get("principal") for _, labels in found} - {None} == {"orchestrator", "token", "other"}
    for word in ("alice", "invented", "sess_"):
        assert word not in str(found)


async def test_metrics_page_needs_a_grant(remit: Remit) -> None:
    import httpx
    from starlette.applications import Starlette

    app = Starlette(routes=metrics_routes(prometheus_page(remit.engine, remit.directory.find)))
    principal = Principal(name="token:ci")

    async def authenticated(scope: Any, receive: Any, send: Any) -> None:
        scope["remit.principal"] = principal
        await app(scope, receive, send)

    async with httpx.AsyncClient(transport=httpx.ASGITransport(app=authenticated), base_url="http://here") as client:
        await remit.delegate("shelf.look")
        with pytest.raises(Refused, match="may not see metrics"):
            await client.get("/metrics")
        principal = Principal(name="token:prometheus", grants=Grants(permissions=frozenset({Permission.METRICS})))
        answer = await client.get("/metrics")
    assert 'delegation_total{operation="look"' in answer.text


async def test_every_alert_rule_uses_existing_metrics(remit: Remit) -> None:
    import yaml

    page = prometheus_page(remit.engine, remit.directory.find)
    await remit.delegate("shelf.look")
    found = samples(page)
    given: dict[str, set[str]] = {}
    for name, labels in found:
        given.setdefault(name, set()).update(name for name, _ in labels)
    (group,) = yaml.safe_load(RULES.read_text())["groups"]
    assert len(group["rules"]) == sum(metric.below is not None or metric.above is not None for metric in METRICS)
    for rule in group["rules"]:
        expression = rule["expr"]
        asked = re.findall(r"rate\((\w+)(?:\{(\w+)[^}]*\})?\[", expression)
        assert asked
        for name, label in asked:
            assert name in given, expression
            assert not label or label in given[name]
        for grouped in re.findall(r"by \(([^)]*)\)", expression):
            assert set(grouped.split(", ")) <= set().union(*(given[name] for name, _ in asked))
        for state in re.findall(r'state[!=~]+"([^"]*)"', expression):
            assert {State(one) for one in state.split("|")}
        assert expression.count("(") == expression.count(")")
