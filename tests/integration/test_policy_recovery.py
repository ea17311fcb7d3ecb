"""Policy after a crash: rules apply again, and a delegation whose secrets are not recorded is not run again."""

import subprocess
import sys
import time
from pathlib import Path

import pytest

from support import cli

AGENTS = """
import asyncio
from pathlib import Path
from remit import agent

@agent(resumable=True)
async def slow(ctx, token: str = "", note: str = ""):
    with open("ran.txt", "a") as file:
        file.write(f"{token}|{note}\\n")
    if ctx.saved is None and Path("wait").exists():
        await asyncio.sleep(60)
    return "done"
"""
ASKS = 'permit (principal, action, resource); @id("asks") @ask("may slow run?") permit (principal, action == Action::"slow", resource);'


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / ".remit" / "agents").mkdir(parents=True)
    (tmp_path / ".remit" / "agents" / "slow.py").write_text(AGENTS)
    (tmp_path / "wait").touch()
    return tmp_path


def run_and_kill(folder: Path, *parameters: str) -> None:
    command = [sys.executable, "-m", "remit.cli.main", "delegate", "slow", *parameters]
    process = subprocess.Popen(command, cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        end = time.monotonic() + 60
        while not ((folder / "ran.txt").exists() and (folder / "ran.txt").stat().st_size):
            assert time.monotonic() < end, "the agent did not run"
            time.sleep(0.02)
    finally:
        process.kill()
        process.wait(10)
    (folder / "wait").unlink()


def recovered(folder: Path) -> dict[str, object]:
    cli.run("recover", cwd=folder)
    document = cli.run("show", "last", "--json", cwd=folder).json()
    return dict(document.get("delegation", document)["return"])


def test_delegation_with_unrecorded_secrets_is_settled_with_the_reason(project: Path) -> None:
    run_and_kill(project, "token=hush-hush-99")
    result = recovered(project)
    assert "secrets among its parameters are not on record" in str(result)
    assert (project / "ran.txt").read_text() == "hush-hush-99|\n"


def test_policy_is_evaluated_again_on_recovery(project: Path) -> None:
    run_and_kill(project, "note=hello")
    (project / ".remit" / "policy.cedar").write_text(ASKS)
    result = recovered(project)
    assert result["stop_reason"] == "refused"
    assert "no person can be asked" in str(result)
    assert (project / "ran.txt").read_text() == "|hello\n"
