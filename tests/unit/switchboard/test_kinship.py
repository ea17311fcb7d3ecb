"""Whether a process belongs to a delegation: by real processes, as the kernel tells it."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from remit.agents.attach.board import Kin, is_kin
from remit.system.processes import has_proc, process_start

pytestmark = pytest.mark.skipif(not has_proc(), reason="needs /proc")
PREFIX = "project:owner:"


def kin(session_id: str = "sess_1700000000_aaaaaa", *, apart: bool = True, carrier: tuple[int, str] | None = None) -> Kin:
    return Kin(session_id=session_id, owner_pid=os.getpid(), mark_prefix=PREFIX, has_own_processes=apart, carrier=carrier)


@contextmanager
def processes(*marks: str) -> Iterator[list[int]]:
    """One below the other, each with its mark; the pids from the top."""
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


def test_a_process_below_the_supervisor_belongs_to_it() -> None:
    with processes(f"{PREFIX}sess_1700000000_aaaaaa", "another") as pids:
        assert [is_kin(pid, kin()) for pid in pids] == [True, True]
        assert not any(is_kin(pid, kin("sess_1700000000_bbbbbb")) for pid in pids)


def test_the_topmost_mark_counts_so_that_none_below_can_pretend_to_another() -> None:
    with processes(f"{PREFIX}sess_1700000000_bbbbbb", f"{PREFIX}sess_1700000000_aaaaaa") as pids:
        assert not any(is_kin(pid, kin()) for pid in pids)


def test_a_zygote_is_nobodys() -> None:
    with processes(f"{PREFIX}zygote", f"{PREFIX}sess_1700000000_aaaaaa") as (zygote, worker):
        assert is_kin(worker, kin())
        assert not is_kin(zygote, kin())
        assert not is_kin(zygote, kin(apart=False)), "one that killed its supervisor is not taken for an agent on our loop"


def test_acceptance_commands_do_not_belong_to_the_agent() -> None:
    with processes(f"{PREFIX}sess_1700000000_aaaaaa:accept-1") as (pid,):
        assert not is_kin(pid, kin())


def test_agents_without_processes_of_their_own_have_ours() -> None:
    assert is_kin(os.getpid(), kin(apart=False))
    assert not is_kin(os.getpid(), kin(apart=True))
    with processes("another") as (pid,):
        assert is_kin(pid, kin(apart=False))
    assert not is_kin(1, kin(apart=False))
    assert not is_kin(os.getppid(), kin(apart=False))


def test_what_another_process_carries_out_has_that_process() -> None:
    with processes("another", "another") as (top, below):
        carrier = (top, process_start(top) or "")
        assert is_kin(below, kin(carrier=carrier))
        assert not is_kin(os.getpid(), kin(carrier=carrier))
        assert not is_kin(below, kin(carrier=(top, "another start"))), "a pid used again is somebody else"


def test_a_process_that_is_gone_is_nobodys() -> None:
    with processes("another") as (pid,):
        pass
    assert not is_kin(pid, kin(apart=False))
