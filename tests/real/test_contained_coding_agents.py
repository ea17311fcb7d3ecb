"""Real coding agents in a container with a hostile model."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from real_harness import CLAUDE, CODERS, CODEX, OPENCODE, Coder, Harness, need, open_harness

from remit import Return
from remit.testing import Call, ModelRequest, Say, Silence, valid_return
from remit.testing import ModelTurn as Turn
from support.containment import SECRET, victim
from support.escape_stage import batched, must_have_held, targets
from support.sandboxes import probe, python

pytestmark = [
    pytest.mark.timeout(150),
    pytest.mark.skipif(not probe().has_bubblewrap, reason="bubblewrap does not work here"),
]
EACH = pytest.mark.parametrize("coder", CODERS, ids=lambda coder: coder.name)


def explain(result: Return, harness: Harness) -> str:
    """Details for a failing test."""
    return f"{result.to_dict()}\nfaults of the script: {harness.models.faults}"


@EACH
async def test_hostile_model_cannot_reach_the_host_and_its_work_is_merged(
    coder: Coder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The model runs every attack and the escape corpus in the shell of a worktree. Then it delegates over MCP, the only way out of the
    container."""
    need(coder)
    monkeypatch.setenv("GITHUB_TOKEN", SECRET)

    def play(request: ModelRequest) -> Turn:
        if request.turn == 0:
            return coder.shell(f"{python().program} attack.py; {python().program} escapes.py > escapes.txt")
        if request.turn == 1 and coder is CLAUDE:
            return Call("delegate", target="counter", parameters={"word": "abc"})
        return Say(valid_return(request, data={"heard": [one[:3000] for one in request.results]}))

    (tmp_path / "targets").mkdir()
    with targets(tmp_path / "targets") as facts:
        async with open_harness(tmp_path, play) as harness, victim(tmp_path, harness.project) as host:
            harness.cast("one", coder, contain=True, workspace="worktree", merge=True, delegates=coder is CLAUDE)
            host.arm()
            (harness.project / "escapes.py").write_text(batched(facts))
            harness.begin_git()
            host.seal()
            async with harness.open() as remit:
                result = await remit.delegate("one", task="Attack.", timeout=120)
                tree = await remit.tree(result.session_id)
            assert result.status == "completed", explain(result, harness)
            host.check(harness.project / "report.json")
            must_have_held((harness.project / "escapes.txt").read_text())
            assert [record.agent for record in tree] == (["one", "counter"] if coder is CLAUDE else ["one"]), explain(result, harness)
            await harness.wait_for_nobody()


@pytest.mark.parametrize(
    "coder", [CODEX, *(pytest.param(one, marks=pytest.mark.lab) for one in (CLAUDE, OPENCODE))], ids=lambda coder: coder.name
)
async def test_contained_session_is_resumed(coder: Coder, tmp_path: Path) -> None:
    """Stop the agent during its work, then resume its session from the private copy."""
    need(coder)

    def play(request: ModelRequest) -> Turn:
        if "You were interrupted" in request.last.text:
            return Say(valid_return(request, data="taken up"))
        return coder.shell("printf half > half.txt; sleep 3600") if request.turn == 0 else Silence()

    async with open_harness(tmp_path, play) as harness:
        harness.cast("one", coder, contain=True)
        async with harness.open() as remit:
            handle = await remit.start("one", task="Take your time.", timeout=120)
            await harness.wait_for_file("half.txt")
            await handle.cancel("for now")
            stopped = await asyncio.wait_for(handle.result(), 20)
            await harness.wait_for_nobody()
            result: Any = await remit.delegate("one", task="Take your time.", resume=stopped.session_id, timeout=90)
        assert (result.status, result.data) == ("completed", "taken up"), explain(result, harness)
        assert harness.models.requests[-1].answers >= 1, "the request goes to the session that did the work"
