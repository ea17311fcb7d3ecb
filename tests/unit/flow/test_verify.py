"""Acceptance commands: bounded in time, and killed with everything they started."""

import asyncio
import contextlib
import os
import re
import time
import uuid
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import pytest

from remit import Settings
from remit.runtime.verify import OUTPUT_TAIL_BYTES, Acceptance, AcceptanceSite, run_acceptance
from remit.system.sandbox import probe as probes
from support.pace import allowed

Verify = Callable[..., Awaitable[Acceptance]]


@pytest.fixture(params=["sandbox", "landlock", "host"])
def verify(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Verify:
    """Every way to run acceptance commands."""
    offer = probes.probe()
    if request.param == "landlock":
        offer = replace(offer, bubblewrap=None)
        monkeypatch.setattr(probes, "_known", offer)
    if request.param != "host" and not (offer.has_keeper if request.param == "landlock" else offer.has_bubblewrap):
        pytest.skip("There is no such sandbox here.")
    settings = Settings(accept_in="host" if request.param == "host" else "sandbox")

    async def run(commands: list[str], *, cwd: Path, seconds_left: float) -> Acceptance:
        return await run_acceptance(
            commands, AcceptanceSite(folder=cwd, root=cwd, settings=settings, is_asked_here=True), seconds_left=seconds_left
        )

    return run


@pytest.fixture
def long() -> str:
    """A command that sleeps for a unique time, so that its processes are found from any namespace."""
    return f"sleep 60.{uuid.uuid4().int % 10**9:09}"


def is_running(command: str) -> bool:
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            if path.read_bytes().split(b"\0")[:-1] == command.encode().split():
                return True
    return False


async def test_hanging_command_is_killed_with_everything_it_started(verify: Verify, tmp_path: Path, long: str) -> None:
    (tmp_path / "started").mkdir()
    command = f"trap '' TERM; setsid env -i sh -c 'touch started/daemon; exec {long}' & touch started/leader; {long}; {long}"
    began = time.monotonic()
    acceptance = await verify([command, "true"], cwd=tmp_path, seconds_left=0.5)
    assert time.monotonic() - began < allowed(3)
    assert [check.exit_code for check in acceptance.checks] == [None, None]
    assert acceptance.error is not None
    assert re.search(r"was stopped after 0\.[45]\d* s", acceptance.error.message)
    assert "was not run" in acceptance.checks[1].trouble
    assert sorted(os.listdir(tmp_path / "started")) == ["daemon", "leader"]
    assert not is_running(long)


async def test_background_process_is_neither_waited_for_nor_left(verify: Verify, tmp_path: Path, long: str) -> None:
    began = time.monotonic()
    acceptance = await verify([f"{long} & sleep 0.1"], cwd=tmp_path, seconds_left=20)
    assert acceptance.is_met
    assert time.monotonic() - began < allowed(5)
    assert not is_running(long)


async def test_endless_output_is_read_and_only_its_tail_kept(verify: Verify, tmp_path: Path) -> None:
    command = "head -c 20000000 /dev/zero | tr '\\0' x; echo the end"
    (check,) = (await verify([command], cwd=tmp_path, seconds_left=20)).checks
    assert check.exit_code == 0
    assert len(check.output_tail) <= OUTPUT_TAIL_BYTES
    assert check.output_tail.endswith("xthe end\n")


async def test_cancelled_check_leaves_no_process(verify: Verify, tmp_path: Path, long: str) -> None:
    os.mkfifo(tmp_path / "ready")
    running = asyncio.ensure_future(verify([f"{long} & echo > ready; {long}"], cwd=tmp_path, seconds_left=60))
    await asyncio.to_thread((tmp_path / "ready").read_text)
    running.cancel()
    await asyncio.wait({running})
    assert running.cancelled()
    assert not is_running(long)
