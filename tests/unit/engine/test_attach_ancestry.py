"""Membership of a process in a delegation, checked with real processes."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from remit.agents.attach_server import Ancestry, is_process_of
from remit.system.processes import process_start

PREFIX = "project:owner:"


def ancestry(session_id: str = "sess_1700000000_aaaaaa", *, apart: bool = True, performer: tuple[int, str] | None = None) -> Ancestry:
    return Ancestry(session_id=session_id, owner_pid=os.getpid(), mark_prefix=PREFIX, has_own_processes=apart, performer=performer)


@contextmanager
def processes(*marks: str) -> Iterator[list[int]]:
    """Nested processes, each with its mark; yields their pids from the top."""
    started = subprocess.Popen([sys.executable, "-c", _CHAIN, *marks], stdout=subprocess.PIPE, text=True, start_new_session=True)
    assert started.stdout is not None
    try:
        yield [int(started.stdout.readline()) for _ in marks]
    finally:
        os.killpg(started.pid, 9)
        started.wait()
        started.stdout.close()


_CHAIN = """
import os, subprocess, sys
if "BELOW" in os.environ:
    print(os.getpid(), flush=True)
if sys.argv[1:]:
    mark, *rest = sys.argv[1:]
    subprocess.run([sys.executable, "-c", os.environ.get("BELOW") or sys.orig_argv[2], *rest],
                   env={**os.environ, "REMIT_MARK": mark, "BELOW": sys.orig_argv[2]})
else:
    import time
    time.sleep(60)
"""


def test_process_below_the_supervisor_belongs_to_its_delegation() -> None:
    with processes(f"{PREFIX}sess_1700000000_aaaaaa", "another") as pids:
        assert [is_process_of(pid, ancestry()) for pid in pids] == [True, True]
        assert not any(is_process_of(pid, ancestry("sess_1700000000_bbbbbb")) for pid in pids)


def test_topmost_mark_decides_so_that_no_process_can_forge_another() -> None:
    with processes(f"{PREFIX}sess_1700000000_bbbbbb", f"{PREFIX}sess_1700000000_aaaaaa") as pids:
        assert not any(is_process_of(pid, ancestry()) for pid in pids)


def test_fork_server_belongs_to_no_delegation() -> None:
    with processes(f"{PREFIX}fork_server", f"{PREFIX}sess_1700000000_aaaaaa") as (server, worker):
        assert is_process_of(worker, ancestry())
        assert not is_process_of(server, ancestry())
        assert not is_process_of(server, ancestry(apart=False)), "also if a process killed its supervisor"


def test_acceptance_commands_do_not_belong_to_the_agent() -> None:
    with processes(f"{PREFIX}sess_1700000000_aaaaaa:accept-1") as (pid,):
        assert not is_process_of(pid, ancestry())


def test_agents_without_their_own_processes_use_ours() -> None:
    assert is_process_of(os.getpid(), ancestry(apart=False))
    assert not is_process_of(os.getpid(), ancestry(apart=True))
    with processes("another") as (pid,):
        assert is_process_of(pid, ancestry(apart=False))
    assert not is_process_of(1, ancestry(apart=False))
    assert not is_process_of(os.getppid(), ancestry(apart=False))


def test_agent_performed_by_an_attached_process_has_that_process() -> None:
    with processes("another", "another") as (top, below):
        performer = (top, process_start(top) or "")
        assert is_process_of(below, ancestry(performer=performer))
        assert not is_process_of(os.getpid(), ancestry(performer=performer))
        assert not is_process_of(below, ancestry(performer=(top, "another start"))), "a reused pid is another process"


def test_ended_process_belongs_to_no_delegation() -> None:
    with processes("another") as (pid,):
        pass
    assert not is_process_of(pid, ancestry(apart=False))
