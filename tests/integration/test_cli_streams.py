"""Output streams of the command line: full disks, closed streams, pipes, and a second Ctrl-C."""

import os
import re
import signal
import subprocess
import time
from pathlib import Path

import pytest

from support.cli import COMMAND, run, start

STUBBORN = """
import asyncio, time
from remit import agent

@agent("stubborn", isolation="process", timeout=60)
def stubborn(ctx, text: str = ""):
    ctx.progress("begun")
    try:
        time.sleep(50)
    finally:
        time.sleep(1)

@agent("failing")
async def failing():
    raise ValueError("it broke")

@agent("parent")
async def parent(ctx):
    for number in range(8):
        await ctx.delegate("failing")
        await asyncio.sleep(0.02)
        ctx.progress(f"after {number}")

@agent("words")
async def words(text: str) -> str:
    return text
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / ".remit" / "agents").mkdir(parents=True)
    (tmp_path / ".remit" / "agents" / "some.py").write_text(STUBBORN)
    assert run("delegate", "words", "text=" + "word " * 60 + "end", cwd=tmp_path).code == 0
    return tmp_path


@pytest.mark.parametrize("arguments", [("history",), ("history", "--json"), ("board",), ("--help",)])
def test_full_disk_prints_one_line_and_an_exit_code(project: Path, arguments: tuple[str, ...]) -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run([*COMMAND, *arguments], cwd=project, stdout=full, stderr=subprocess.PIPE, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (7, "Error: Cannot write the output: No space left on device.\n")


def test_closed_stdout_prints_one_line_and_an_exit_code(project: Path) -> None:
    command = ["sh", "-c", 'exec "$@" >&-', "sh", *COMMAND, "history"]
    done = subprocess.run(command, cwd=project, stderr=subprocess.PIPE, text=True, timeout=60, check=False)
    assert done.returncode == 7
    assert re.fullmatch(r"Error: standard output is closed\..*\n", done.stderr)


def test_table_is_not_truncated_in_a_pipe(project: Path) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "COLUMNS"}
    assert "…" not in run("history", cwd=project, env=environment).stdout
    narrow = run("history", cwd=project, env={**environment, "COLUMNS": "60"})
    assert "…" in narrow.stdout
    assert max(map(len, narrow.stdout.splitlines())) <= 60


def test_times_of_events_never_run_backwards_in_a_pipe(project: Path) -> None:
    printed = re.findall(r"^ *([\d.]+) s  (parent|failing) ", run("delegate", "parent", cwd=project).stderr, re.MULTILINE)
    assert len(printed) == 16, "a progress message and a failed child each time"
    assert [float(at) for at, _ in printed] == sorted(float(at) for at, _ in printed)


@pytest.mark.parametrize("gap", [0.0, 0.1])
def test_second_ctrl_c_prints_no_traceback(project: Path, gap: float) -> None:
    process = start("delegate", "stubborn", cwd=project, preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler))
    assert process.stderr is not None
    assert any("begun" in line for line in process.stderr)
    process.send_signal(signal.SIGINT)
    time.sleep(gap)
    process.send_signal(signal.SIGINT)
    _, output = process.communicate(timeout=60)
    assert process.returncode in (130, -signal.SIGINT)
    assert "Traceback" not in output
