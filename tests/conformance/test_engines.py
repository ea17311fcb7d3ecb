"""Both engines pass `support.engine_suite`: the embedded engine over each store, and an engine built on the port alone."""

from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import pytest

from remit import MemoryStore, Remit
from support.engine_suite import DURABILITY_CHECKS, ENGINE_CHECKS, Check, OpenRemit
from support.memory_engine import MemoryEngine
from support.postgres import new_schema


@pytest.fixture(params=["sqlite", "sqlite-power", "memory-engine", "postgres"])
def open_remit(request: pytest.FixtureRequest) -> OpenRemit:
    schema = new_schema()
    url = request.getfixturevalue("postgres").url if request.param == "postgres" else ""

    def open_one(root: Path, agents: list[Any], **settings: Any) -> AbstractAsyncContextManager[Remit]:
        if request.param == "memory-engine":
            return Remit.open(root, agents=agents, settings=settings, store=MemoryStore(), engine=MemoryEngine)
        if request.param == "postgres":
            return Remit.open(root, agents=agents, settings={**settings, "store": {"url": url, "schema": schema}})
        durability = "power" if request.param == "sqlite-power" else "process"
        return Remit.open(root, agents=agents, settings=settings, durability=durability)

    return open_one


@pytest.mark.parametrize("check", ENGINE_CHECKS, ids=lambda check: check.__name__)
async def test_engine_passes_the_check(check: Check, open_remit: OpenRemit, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    if check in DURABILITY_CHECKS and "memory-engine" in request.node.name:
        pytest.skip("an in-memory engine persists nothing")
    await check(open_remit, tmp_path)
