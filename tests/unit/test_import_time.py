"""Importing is cheap: optional packages and heavy modules are loaded when they are needed. `python -m bench --only start` measures it."""

import json
import subprocess
import sys

import pytest

MANY_MACHINES = (
    "temporalio psycopg psycopg_pool obstore remit.engines.temporal remit.stores.postgres remit.stores.blobs remit.runtime.shipment"
)
DELEGATES = """
import asyncio, tempfile
@agent("one")
async def one() -> int:
    return 1
async def delegates():
    with tempfile.TemporaryDirectory() as folder:
        async with Remit.open(folder, agents=[one], settings={"builtin_agents": ()}) as remit:
            assert (await remit.delegate("one")).data == 1
asyncio.run(delegates())
"""
STAGES = {
    "library": "from remit import Remit, Return, agent",
    "embedded": DELEGATES,
    "tool": "import remit.app, remit.runtime.tool.delegate_tool",
    "targets": "import remit.builtin.worker, remit.builtin.researcher, remit.builtin.coder",
    "models": "from remit.models.client import Models; from remit.core.settings import Settings\n"
    "Models(Settings(model=('ollama:x',))).choice()",
}
"""Run one after the other in one interpreter."""
HEAVY = {
    "library": "cedarpy remit.models remit.builtin.assistant remit.core.settings remit.runtime.validate remit.policy typer rich mcp "
    + MANY_MACHINES,
    "embedded": MANY_MACHINES,
    "tool": "grpc google",
    "targets": "httpcore trafilatura pypdf ddgs bm25s numpy tree_sitter lxml remit.builtin.worker.pages remit.builtin.worker.web_search "
    "remit.system.sandbox.boxes remit.system.sandbox.run remit.system.sandbox.probe encodings.big5 "
    "remit.builtin.coder.analysis. remit.builtin.researcher.",
    "models": "pydantic_ai openai anthropic genai_prices httpx2",
}
"""Packages and modules that must not be loaded by a stage; a final dot means only the modules below."""


@pytest.fixture(scope="module")
def loaded() -> dict[str, list[str]]:
    lines = (f"{code}\nprint(json.dumps([{stage!r}, sorted(sys.modules)]))" for stage, code in STAGES.items())
    program = "import json, sys\n" + "\n".join(lines)
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=120)
    return dict(map(json.loads, ran.stdout.splitlines()))


@pytest.mark.parametrize("stage", STAGES)
def test_import_loads_no_heavy_module(loaded: dict[str, list[str]], stage: str) -> None:
    heavy = HEAVY[stage].split()
    found = [name for name in loaded[stage] if name in heavy or name.startswith(tuple(f"{one.rstrip('.')}." for one in heavy))]
    assert found == []
