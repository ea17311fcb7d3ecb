"""Every kind of agent on a worker that runs as a CLI command in a separate process."""

import contextlib
import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from real_harness import CLAUDE, CODEX, OPENCODE, Coder, Harness, need, open_harness

from remit.testing import Call, Reply, Say, valid_return
from support.temporal_server import TemporalServer
from support.worker_command import worker_command

pytestmark = pytest.mark.timeout(200)
CLOCK = str(Path(sys.executable).with_name("mcp-server-time"))
SECRETS = {
    "AWS_SECRET_ACCESS_KEY": "stolen-1",
    "TEMPORAL_GRPC_META_AUTHORIZATION": "stolen-2",
    "PGPASSWORD": "stolen-3",
    "SHOP_KEY": "given",
}
AGENTS = """
import os
from remit import BlockingContext, Context, agent

@agent("looks", isolation="process")
def looks(ctx: BlockingContext) -> dict:
    return {name: value for name, value in os.environ.items() if name.startswith(("AWS_", "TEMPORAL_", "PG", "SHOP_"))}

@agent("counts")
async def counts(ctx: Context, word: str) -> int:
    return len(word)
"""
GOOD = Reply(lambda request: Say(valid_return(request, summary="Found three things.", artifacts=["report.md"])))


@contextlib.asynccontextmanager
async def on_worker(harness: Harness, temporal: TemporalServer) -> AsyncIterator[int]:
    """Start a worker of the harness and yield its process id."""
    temporal = {"address": temporal.address, "pass_environment": ["SHOP_*"]}
    harness.settings |= {"engine": {"kind": "temporal", "project": f"real{os.getpid()}{id(harness)}", "temporal": temporal}}
    (harness.project / ".remit" / "agents" / "work.py").write_text(AGENTS)
    harness.write()
    async with worker_command(harness.project, SECRETS) as process:
        yield process.pid


@pytest.mark.parametrize(
    "coder",
    [CLAUDE, pytest.param(CODEX, marks=pytest.mark.lab), pytest.param(OPENCODE, marks=pytest.mark.lab)],
    ids=lambda coder: coder.name,
)
async def test_coding_agent_runs_on_a_worker(coder: Coder, temporal: TemporalServer, tmp_path: Path) -> None:
    need(coder)
    script = [coder.shell("printf 'three findings' > report.md"), GOOD]
    async with open_harness(tmp_path, script, describe_seconds=60.0, builtin_agents=[]) as harness:
        harness.cast("one", coder)
        async with on_worker(harness, temporal) as worker, harness.open() as remit:
            result = await remit.delegate("one", task="Look around and write a report.", timeout=150)
            record = await remit.describe(result.session_id)
        assert (result.status, result.summary) == ("completed", "Found three things."), result.to_dict()
        assert "report.md" in [artifact.path for artifact in result.artifacts]
        assert record.owner.startswith(f"{worker}-")
        await harness.wait_for_nobody()


async def test_agents_on_a_worker_run_without_access_to_its_keys(temporal: TemporalServer, tmp_path: Path) -> None:
    counted = Call("delegate", target="counts", parameters={"word": "shop"})
    async with open_harness(tmp_path, [counted, Reply(lambda request: Say(valid_return(request)))], describe_seconds=60.0) as harness:
        names = " ".join(SECRETS)
        harness.settings |= {
            "builtin_agents": [],
            "model": "scripted",
            "models": {"scripted": {"kind": "openai", "url": harness.models.openai_url, "model": "scripted"}},
        }
        harness.agents |= {
            "thinker": {"kind": "model", "description": "Thinks.", "tools": ["counts"], "timeout": 60},
            "clock": {"mcp": {"command": [CLOCK]}, "timeout": 60},
            "prints": {
                "kind": "command",
                "answers": "value",
                "command": ["sh", "-c", f"for name in {names}; do printenv $name; done; echo end"],
            },
        }
        async with on_worker(harness, temporal) as worker, harness.open() as remit:
            thought = await remit.delegate("thinker", task="Count.", timeout=100)
            now = await remit.delegate("clock.get_current_time", parameters={"timezone": "Europe/Berlin"}, timeout=100)
            printed = await remit.delegate("prints", task="Print.", timeout=100)
            looked = await remit.delegate("looks", timeout=100)
            tree = await remit.tree(thought.session_id)
            records = [await remit.describe(one.session_id) for one in (thought, now, printed, looked)]
        assert [one.status for one in (thought, now, printed, looked)] == ["completed"] * 4, (thought, now, printed, looked)
        assert [one.agent for one in tree] == ["thinker", "counts"]
        assert now.data["timezone"] == "Europe/Berlin"
        assert "stolen" not in str(printed.to_dict())
        assert looked.data == {"SHOP_KEY": "given"}
        assert {one.owner.partition("-")[0] for one in records} == {str(worker)}
