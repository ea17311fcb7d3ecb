"""Log lines name the delegation they belong to."""

import io
import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from remit import CallerInfo, ErrorInfo, Remit, agent, set_up_logs
from remit.core.delegation import ORIGIN, Origin
from remit.core.ids import parse_traceparent
from remit.runtime.telemetry.logs import log_lifecycle

GIVEN = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
LOG = logging.getLogger("remit.test")


@agent("writer")
async def writer(ctx: Any, words: str) -> str:
    LOG.warning("It says: %s", words)
    try:
        raise ValueError(words)
    except ValueError:
        LOG.exception("and raises")
    return str(ctx.environment()["TRACEPARENT"])


@pytest.fixture
def page(request: pytest.FixtureRequest) -> Iterator[io.StringIO]:
    stream = io.StringIO()
    undo = set_up_logs(request.param, stream=stream)
    yield stream
    undo()
    LOG.warning("not here any more")
    assert "not here" not in stream.getvalue()


@pytest.mark.parametrize("page", ["json"], indirect=True)
async def test_json_line_names_delegation_trace_and_caller(tmp_path: Path, page: io.StringIO) -> None:
    async with Remit.open(tmp_path, agents=[writer]) as remit:
        log_lifecycle(remit.engine)
        ORIGIN.set(Origin(caller_info=CallerInfo("token:ci", "http", traceparent=GIVEN)))
        LOG.warning("before the delegation")
        returned = await remit.delegate("writer", words="plain")
        ORIGIN.set(None)
        await remit.delegate("unknown")
        error = ErrorInfo(type="permission", message="no\nsuch", code="UNAUTHENTICATED", recoverable=False, recommendation="ask")
        remit.report_access("grpc", None, error)
    lines = [json.loads(line) for line in page.getvalue().splitlines()]
    said = next(line for line in lines if line["message"] == "It says: plain")
    here = parse_traceparent(returned.data)
    assert here is not None
    assert (said["level"], said["logger"], said["session_id"]) == ("warning", "remit.test", returned.session_id)
    assert (said["trace_id"], said["span_id"]) == (here.trace_id, here.span_id)
    assert (said["principal"], said["door"], said["agent"]) == ("token:ci", "http", "writer")
    assert "ValueError: plain" in next(line for line in lines if line["message"] == "and raises")["exception"]
    before = next(line for line in lines if line["message"] == "before the delegation")
    assert (before["principal"], "session_id" in before) == ("token:ci", False)
    ended = next(line for line in lines if line["message"] == "writer completed")
    assert (ended["session_id"], ended["state"], ended["duration"] >= 0) == (returned.session_id, "completed", True)
    assert any(line["message"].startswith("unknown refused") and line["level"] == "warning" for line in lines)
    assert next(line for line in lines if "turned away" in line["message"])["code"] == "UNAUTHENTICATED"


@pytest.mark.parametrize("page", ["text"], indirect=True)
async def test_caller_cannot_forge_a_log_line(tmp_path: Path, page: io.StringIO) -> None:
    forged = "x\n2026-01-01T00:00:00Z ERROR   all is lost\x1b[2J\r"
    async with Remit.open(tmp_path, agents=[writer]) as remit:
        ORIGIN.set(Origin(caller_info=CallerInfo("token:ci\nERROR", "http")))
        await remit.delegate("writer", words=forged)
        ORIGIN.set(None)
    text = page.getvalue()
    assert "\x1b" not in text
    assert "\r" not in text
    assert not [line for line in text.splitlines() if line.startswith(("2026-01-01", "ERROR"))]
    assert r"x\n2026-01-01" in text
    assert "session_id=sess_" in text


@pytest.mark.parametrize("page", ["json", "text"], indirect=True)
async def test_secrets_are_redacted_in_every_line(tmp_path: Path, page: io.StringIO) -> None:
    @agent("vault")
    async def vault(password: str) -> str:
        LOG.warning("opened with %s", password)
        return "open"

    async with Remit.open(tmp_path, agents=[vault]) as remit:
        await remit.delegate("vault", password="open sesame 4711")
    assert "opened with" in page.getvalue()
    assert "sesame" not in page.getvalue()
