"""Processes are identified by pid and start time, found by descent or by mark, and killed completely."""

import os
import subprocess
import sys
import uuid

import pytest

from remit.system import processes
from remit.system.processes import padded

FORKS = """
import os, signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        time.sleep(600)
    os._exit(0)
os.wait()
print("up", flush=True)
time.sleep(600)
"""


def start(code: str, marker: str) -> subprocess.Popen[bytes]:
    process = subprocess.Popen([sys.executable, "-c", code], env={**os.environ, "REMIT_MARK": padded(marker)}, stdout=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.readline()
    process.stdout.close()
    return process


@pytest.fixture
def marker() -> str:
    return f"test:{uuid.uuid4().hex[:8]}:"


def test_process_is_identified_by_its_start_time() -> None:
    started = processes.process_start(os.getpid())
    assert started is not None
    assert processes.is_alive(os.getpid(), started)
    assert not processes.is_alive(os.getpid(), started + "1")


def test_descendants_are_found() -> None:
    code = "import subprocess,time; subprocess.Popen(['sleep', '60']); print('up', flush=True); time.sleep(60)"
    process = start(code, "")
    below = processes.descendants(os.getpid())
    assert process.pid in below
    assert len(processes.descendants(process.pid)) == 1
    assert processes.kill_tree(process.pid, term_grace=0.0)
    process.wait()


def test_killing_a_tree_reaches_a_detached_daemon(marker: str) -> None:
    """The daemon ignores SIGTERM, has its own session and a dead parent: it is found by its mark."""
    process = start(FORKS, marker)
    assert len(processes.marked(marker)) >= 2
    assert processes.kill_tree(process.pid, marker=marker, term_grace=0.1)
    assert processes.marked(marker) == []
    process.wait()


def test_reused_pid_is_not_killed() -> None:
    process = start("print('up', flush=True); import time; time.sleep(60)", "")
    try:
        assert processes.kill_tree(process.pid, started="another boot:1", term_grace=0.0)
        assert process.poll() is None
    finally:
        process.kill()
        process.wait()


def test_process_that_ends_within_its_grace_is_not_killed(marker: str) -> None:
    code = "import signal,sys,time; signal.signal(15, lambda *_: sys.exit(7)); print('up', flush=True); time.sleep(60)"
    process = start(code, marker)
    assert processes.kill_tree(process.pid, term_grace=5.0)
    assert process.wait() == 7
