"""Synchronous functions on threads."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from remit import Remit, Status, StopReason, agent


@agent("breaks")
def breaks() -> None:
    raise KeyError("colour")


@agent("leaves")
def leaves() -> None:
    raise SystemExit(2)


@pytest.fixture
async def remit(tmp_path: Path) -> AsyncIterator[Remit]:
    async with Remit.open(tmp_path, agents=[breaks, leaves]) as opened:
        yield opened


async def test_exception_of_a_thread_becomes_its_return(remit: Remit) -> None:
    result = await remit.delegate("breaks")
    assert result.status is Status.FAILED
    assert "KeyError: 'colour'" in result.errors[0].message
    result = await remit.delegate("leaves")
    assert (result.stop_reason, result.errors[0].code) == (StopReason.CRASHED, "AGENT_CRASHED")
    assert "SystemExit: 2" in result.errors[0].message
