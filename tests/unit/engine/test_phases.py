"""The state machine of a delegation: one transition table, one end."""

import asyncio
import gc
from pathlib import Path

import pytest

from remit import Remit, Unavailable, agent
from remit.engines.embedded import delegation_run
from remit.engines.embedded.delegation_run import TRANSITIONS, Phase
from remit.testing import Scripted, answer


@agent(name="echo")
async def echo() -> str:
    return "done"


def test_every_phase_leads_to_settled_and_none_leads_back() -> None:
    assert set(TRANSITIONS) == set(Phase)
    assert TRANSITIONS[Phase.SETTLED] == frozenset()
    for phase, following in TRANSITIONS.items():
        assert all(after > phase for after in following)
        assert phase is Phase.SETTLED or following


async def test_internal_error_is_raised_to_the_caller_and_does_not_hang(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_fields: object) -> None:
        raise NameError("SettleDelegation")

    async with Remit.open(tmp_path, agents=[Scripted("worker-bee", answer("done"))]) as remit:
        monkeypatch.setattr(delegation_run, "SettleDelegation", broken)
        with pytest.raises(Unavailable, match="remit could not settle sess_"):
            await asyncio.wait_for(remit.delegate("worker-bee"), 20)
        monkeypatch.undo()
        assert (await remit.delegate("worker-bee")).ok


def runs_in_memory() -> int:
    return sum(type(one) is delegation_run.DelegationRun for one in gc.get_objects())  # a list would keep them alive


async def test_ended_delegation_is_freed_without_the_garbage_collector(tmp_path: Path) -> None:
    async with Remit.open(tmp_path, agents=[echo]) as remit:
        for _ in range(20):
            await remit.delegate("echo")
        gc.collect()
        others = runs_in_memory()  # from earlier tests
        gc.disable()
        try:
            await asyncio.gather(*(remit.delegate("echo") for _ in range(50)))
            for _ in range(100):
                if (left := runs_in_memory()) <= others:
                    break
                await asyncio.sleep(0.05)
        finally:
            gc.enable()
    assert left <= others
