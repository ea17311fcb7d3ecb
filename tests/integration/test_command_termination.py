"""How commands end: soft signal, kill, cancel, orphaned. No process remains, and their files do."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from command_agents import HAND_IN, left, project, python, sh

from remit import EventKind, Handle, Remit, Status, StopReason
from support.engine_samples import until
from support.pace import allowed
from support.processes import is_alive, process_start

DAEMON = "setsid sh -c 'trap \"\" TERM HUP; echo $$ > daemon.pid; sleep 1000' >/dev/null 2>&1 &"
"""A grandchild in its own session that ignores SIGTERM."""


def pid_in(path: Path) -> int:
    return int(path.read_text())


AT_WORK = "echo $$ > at_work.pid; while :; do sleep 0.02; done"


async def at_soft_deadline(remit: Remit, root: Path) -> Handle:
    """A delegation whose command is at work when its soft deadline comes, long before the hard one."""
    handle = await remit.start("cmd", task="Work on.", timeout=60)
    await started(root / "at_work.pid")
    running = remit.engine.live()[handle.session_id]
    running.look(running.delegation.deadline.soft_at)
    return handle


async def started(path: Path) -> int:
    await until(lambda: path.exists() and path.read_text().endswith("\n"))
    return pid_in(path)


# ---- the hard deadline


async def test_hung_command_is_killed_with_its_daemons_and_partial_work_is_returned(tmp_path: Path) -> None:
    script = f"trap '' TERM; {DAEMON} echo half > half.txt; echo streamed; while :; do sleep 1000; done"
    async with project(tmp_path, sh(script)) as remit:
        start = time.monotonic()
        result = await remit.delegate("cmd", task="Hang.", timeout=1.5)
        assert time.monotonic() - start < allowed(5)
        assert left(remit) == []
        assert not is_alive(pid_in(tmp_path / "daemon.pid"), None)
    assert (result.status, result.stop_reason, result.errors[0].code) == (Status.PARTIAL, StopReason.DEADLINE, "TIMEOUT")
    assert "half.txt" in [artifact.path for artifact in result.artifacts]
    assert result.data == {"chunks": ["streamed\n"]}


async def test_final_output_is_kept_and_input_files_are_not_partial_work(tmp_path: Path) -> None:
    """Output between SIGTERM and SIGKILL of the hard deadline is kept."""
    script = "echo own > $REMIT_SCRATCH/own.txt; trap 'echo I was here; exit' TERM; while :; do sleep 0.02; done"
    async with project(tmp_path, sh(script), hand_in="none", prompt="file") as remit:
        result = await remit.delegate("cmd", task="Hang.", timeout=1)
    assert result.stop_reason is StopReason.DEADLINE
    assert "I was here" in str(result.data)
    assert [Path(artifact.path).name for artifact in result.artifacts] == ["own.txt"]


async def test_idle_limit_stops_only_a_silent_command(tmp_path: Path) -> None:
    async with project(tmp_path, sh("sleep 1000"), idle=0.5) as remit:
        result = await remit.delegate("cmd", task="Be silent.", timeout=60)
    assert result.stop_reason is StopReason.IDLE
    async with project(tmp_path, sh("for n in 1 2 3 4 5 6 7 8; do echo $n; sleep 0.2; done"), idle=1.5, answers="value") as remit:
        result = await remit.delegate("cmd", task="Talk.", timeout=60)
    assert result.status is Status.COMPLETED


async def test_finished_command_leaves_no_child_process(tmp_path: Path) -> None:
    async with project(tmp_path, sh(f"{DAEMON} sleep 1000 & while ! test -s daemon.pid; do sleep 0.01; done; {HAND_IN}")) as remit:
        start = time.monotonic()
        result = await remit.delegate("cmd", task="Leave one.", timeout=60)
        assert time.monotonic() - start < allowed(20), "open output of children is not awaited"
        assert left(remit) == []
    assert result.status is Status.COMPLETED


# ---- the soft deadline


async def test_command_that_handles_the_signal_hands_in_at_the_soft_deadline(tmp_path: Path) -> None:
    trap = f"trap '{HAND_IN.replace(chr(39), chr(39) + chr(92) + chr(39) + chr(39))}; exit 0' USR1"
    async with project(tmp_path, sh(f"{trap}; {AT_WORK}"), hand_in="SIGUSR1") as remit:
        result = await (await at_soft_deadline(remit, tmp_path)).result()
        output = [event.body["message"] for event in await remit.events(result.session_id) if event.kind is EventKind.PROGRESS]
    assert (result.status, result.stop_reason) == (Status.COMPLETED, StopReason.FINISHED), result
    assert any("SIGUSR1" in message for message in output)


async def test_command_without_soft_signal_works_until_the_hard_deadline(tmp_path: Path) -> None:
    """SIGTERM would end it early: it may work until the hard deadline."""
    script = f"echo $$ > at_work.pid; while ! test -e go; do sleep 0.02; done; {HAND_IN}"
    async with project(tmp_path, sh(script)) as remit:
        handle = await at_soft_deadline(remit, tmp_path)
        await asyncio.sleep(0.3)  # a signal would end it now
        (tmp_path / "go").touch()
        result = await handle.result()
    assert result.status is Status.COMPLETED, result


async def test_invalid_return_after_the_soft_signal_is_a_timeout(tmp_path: Path) -> None:
    script = f"echo kept > kept.txt; trap 'echo all of it is prose; exit 0' TERM; {AT_WORK}"
    async with project(tmp_path, sh(script)) as remit:
        result = await (await at_soft_deadline(remit, tmp_path)).result()
        assert left(remit) == []
    assert (result.status, result.stop_reason, result.errors[0].code) == (Status.PARTIAL, StopReason.DEADLINE, "TIMEOUT"), result
    assert "kept.txt" in [artifact.path for artifact in result.artifacts]
    assert "60 s" in result.summary


# ---- cancelled, orphaned and hostile commands


async def test_closing_remit_ends_running_commands(tmp_path: Path) -> None:
    async with project(tmp_path, sh(f"{DAEMON} sleep 1000")) as remit:
        await remit.start("cmd", task="Hang.", timeout=60)
        daemon = await started(tmp_path / "daemon.pid")
    assert left(remit) == []
    assert not is_alive(daemon, None)


ORCHESTRATOR = """
import asyncio, sys
from pathlib import Path
sys.path[:0] = [sys.argv[2], str(Path(sys.argv[2]).parent)]
from command_agents import project, sh
async def main():
    async with project(Path(sys.argv[1]), sh(sys.argv[3])) as remit:
        await remit.delegate("cmd", task="Hang.", timeout=60)
asyncio.run(main())
"""


def orchestrating(root: Path, script: str) -> "subprocess.Popen[bytes]":
    return subprocess.Popen([sys.executable, "-c", ORCHESTRATOR, str(root), str(Path(__file__).parent), script])


@pytest.mark.parametrize("with_supervisor", [False, True])
async def test_killed_remit_process_takes_its_commands_with_it(tmp_path: Path, with_supervisor: bool) -> None:
    orchestrator = orchestrating(tmp_path, f"trap '' TERM HUP; {DAEMON} echo $$ $PPID > command.pid; sleep 1000")
    try:
        daemon = await started(tmp_path / "daemon.pid")
        await until(lambda: (tmp_path / "command.pid").exists() and (tmp_path / "command.pid").read_text().endswith("\n"))
        command, supervisor = map(int, (tmp_path / "command.pid").read_text().split())
        known = [(pid, process_start(pid)) for pid in (daemon, command)]
        assert all(is_alive(*process) for process in known)
    finally:
        orchestrator.kill()
        if with_supervisor:
            os.kill(supervisor, signal.SIGKILL)
        orchestrator.wait()
    await until(lambda: not any(is_alive(*process) for process in known))
    async with Remit.open(tmp_path) as remit:
        (record,) = await remit.history()
    assert record.result is not None
    assert record.result.errors[0].code == "AGENT_CRASHED"


async def test_command_that_kills_its_supervisor_crashes_and_leaves_no_process(tmp_path: Path) -> None:
    async with project(tmp_path, sh(f"{DAEMON} while ! test -s daemon.pid; do sleep 0.01; done; kill -9 $PPID; sleep 1000")) as remit:
        result = await remit.delegate("cmd", task="Kill.", timeout=60)
        assert result.errors[0].code == "AGENT_CRASHED", result
        daemon = pid_in(tmp_path / "daemon.pid")
        await until(lambda: left(remit) == [] and not is_alive(daemon, None))
        assert (await remit.delegate("cmd", task="Again.", timeout=60)).errors[0].code == "AGENT_CRASHED"


FORKS = "import os, time\nfor _ in range(60):\n    if os.fork() == 0:\n        os.setsid(); time.sleep(1000)\ntime.sleep(1000)"


@pytest.mark.parametrize(
    "command", [sh("kill -STOP $PPID; kill -STOP $$; sleep 1000"), python(FORKS), ["yes"]], ids=["stops its supervisor", "forks", "floods"]
)
async def test_hostile_command_ends_at_its_deadline_and_leaves_no_process(
    tmp_path: Path, command: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REMIT_CHUNK_LIMIT_BYTES", "65536")  # reached in time on a busy machine
    async with project(tmp_path, command) as remit:
        start = time.monotonic()
        result = await remit.delegate("cmd", task="Be rude.", timeout=1.5)
        assert time.monotonic() - start < allowed(5)
        assert result.stop_reason is StopReason.DEADLINE
        await until(lambda: left(remit) == [])
    assert command != ["yes"] or any("limit" in warning for warning in result.warnings)
