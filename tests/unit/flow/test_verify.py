"""Acceptance commands: run here, bounded, killed whole."""

import asyncio
import os
import time
from pathlib import Path

import pytest

from remit import Remit, agent
from remit.runtime.verify import OUTPUT_TAIL_BYTES, run_acceptance
from support.pace import allowed


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] not in "ZX"
    except OSError:
        return False


async def test_commands_that_exit_0_are_met(tmp_path: Path) -> None:
    (tmp_path / "a").touch()
    acceptance = await run_acceptance(["test -f a", "echo fine >&2"], cwd=tmp_path, seconds_left=20)
    assert acceptance.is_met
    assert acceptance.error is None
    assert [check.exit_code for check in acceptance.checks] == [0, 0]
    assert acceptance.checks[1].output_tail == "fine\n"


async def test_one_that_fails_gives_an_error_with_its_name_code_and_output(tmp_path: Path) -> None:
    acceptance = await run_acceptance(["echo no such luck; exit 3", "true"], cwd=tmp_path, seconds_left=20)
    assert not acceptance.is_met
    assert [check.exit_code for check in acceptance.checks] == [3, 0]
    error = acceptance.error
    assert error is not None
    assert (error.type, error.code, error.recoverable) == ("validation", "VALIDATION_FAILED", True)
    for part in ("echo no such luck; exit 3", "exited 3", "no such luck"):
        assert part in error.message


async def test_none_at_all_is_met(tmp_path: Path) -> None:
    assert (await run_acceptance([], cwd=tmp_path, seconds_left=1)).is_met


async def test_one_that_hangs_is_killed_with_everything_it_started(tmp_path: Path) -> None:
    command = "trap '' TERM; setsid sh -c 'echo $$ > daemon; exec sleep 60' & echo $$ > leader; sleep 60; sleep 60"
    began = time.monotonic()
    acceptance = await run_acceptance([command, "true"], cwd=tmp_path, seconds_left=0.5)
    assert time.monotonic() - began < allowed(3)
    assert [check.exit_code for check in acceptance.checks] == [None, None]
    assert acceptance.error is not None
    assert "was stopped after 0.5 s" in acceptance.error.message
    assert "was not run" in acceptance.checks[1].trouble
    for name in ("daemon", "leader"):
        assert not is_running(int((tmp_path / name).read_text()))


async def test_what_is_left_in_the_background_is_not_waited_for_and_not_left(tmp_path: Path) -> None:
    began = time.monotonic()
    acceptance = await run_acceptance(["sleep 60 & echo $! > pid"], cwd=tmp_path, seconds_left=20)
    assert acceptance.is_met
    assert time.monotonic() - began < allowed(5)
    assert not is_running(int((tmp_path / "pid").read_text()))


async def test_output_without_end_is_read_and_only_its_tail_kept(tmp_path: Path) -> None:
    command = "head -c 20000000 /dev/zero | tr '\\0' x; echo the end"
    (check,) = (await run_acceptance([command], cwd=tmp_path, seconds_left=20)).checks
    assert check.exit_code == 0
    assert len(check.output_tail) <= OUTPUT_TAIL_BYTES
    assert check.output_tail.endswith("xthe end\n")


async def test_one_that_cannot_be_started_is_not_met(tmp_path: Path) -> None:
    for command, folder in (("true", tmp_path / "absent"), ("a\0b", tmp_path)):
        acceptance = await run_acceptance([command], cwd=folder, seconds_left=5)
        assert not acceptance.is_met
        assert "could not be started" in acceptance.checks[0].trouble


async def test_a_cancelled_check_leaves_no_process(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "ready")
    running = asyncio.create_task(run_acceptance(["echo $$ > ready; sleep 60"], cwd=tmp_path, seconds_left=60))
    pid = int(await asyncio.to_thread((tmp_path / "ready").read_text))
    running.cancel()
    await asyncio.wait({running})
    assert running.cancelled()
    assert not is_running(pid)


async def test_no_descriptor_is_left_open(tmp_path: Path) -> None:
    await run_acceptance(["true"], cwd=tmp_path, seconds_left=20)
    before = len(os.listdir("/proc/self/fd"))
    await run_acceptance(["true", "false", "sleep 5"], cwd=tmp_path, seconds_left=0.3)
    assert len(os.listdir("/proc/self/fd")) == before


async def test_commands_get_listed_variables_and_no_keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What `pytest -q` runs, an agent may have written."""
    for name in ("ANTHROPIC_API_KEY", "GITHUB_TOKEN", "DATABASE_URL", "REMIT_MODEL", "LC_ALL"):
        monkeypatch.setenv(name, "known")

    @agent("write")
    async def write() -> str:
        return "Done."

    async def variables(**settings: object) -> dict[str, str]:
        async with Remit.open(tmp_path, agents=[write], settings=settings) as remit:
            done = await remit.delegate("write", accept=["env > variables"])
        assert done.evidence == "verified"
        return dict(line.partition("=")[::2] for line in (tmp_path / "variables").read_text().splitlines())

    found = await variables()
    assert not {"ANTHROPIC_API_KEY", "GITHUB_TOKEN", "DATABASE_URL", "REMIT_MODEL", "REMIT_CALLER"} & set(found)
    assert (found["PATH"], found["LC_ALL"], found["REMIT_ROOT"]) == (os.environ["PATH"], "known", str(tmp_path))
    assert (await variables(accept_env=["DATABASE_URL"]))["DATABASE_URL"] == "known"
