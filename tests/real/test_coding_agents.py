"""Real coding agents: claude, codex and opencode, and opencode also over the Agent Client Protocol.

Their models are scripted; everything else is the program that users run. Tests are skipped with a reason if an agent is not installed.
"""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from real_harness import CLAUDE, CODERS, CODEX, OPENCODE, Coder, Harness, need, open_harness

from remit import EventKind, Limits, Return
from remit.testing import Call, Fail, ModelRequest, Reply, Say, Silence, valid_return
from remit.testing import ModelTurn as Turn
from support.processes import look

pytestmark = pytest.mark.timeout(150)
WRITE_REPORT = "printf 'three findings' > report.md"
HALF_AND_HANG = "printf 'half' > half.txt; setsid sleep 3600 & sleep 3600"

SITS = """
import subprocess, time
from remit import BlockingContext, agent

@agent("sits", isolation="process")
def sits(ctx: BlockingContext) -> None:
    child = subprocess.Popen(["sleep", "3600"], start_new_session=True)
    (ctx.root / "half.part").write_text(str(child.pid))
    (ctx.root / "half.part").rename(ctx.root / "half.txt")
    time.sleep(3600)
"""


@pytest.fixture(params=CODERS, ids=lambda coder: coder.name.replace(" ", "-"))
def coder(request: pytest.FixtureRequest) -> Coder:
    chosen: Coder = request.param
    need(chosen)
    return chosen


def good(**more: Any) -> Reply:
    return Reply(lambda request: Say(valid_return(request, **more)).using(500, 40))


def explain(result: Return, harness: Harness) -> str:
    """Details for a failing test."""
    return f"{result.to_dict()}\nfaults of the script: {harness.models.faults}"


async def test_result_is_valid_and_prose_is_repaired_in_the_same_session(coder: Coder, tmp_path: Path) -> None:
    """The result has text, a written file and counted tokens. The repair request with the faults goes to the session that did the work."""
    prose = Say("I did all you wanted, and it was easy.")
    found = good(summary="Found three things. They are written down.", artifacts=["report.md"])
    async with open_harness(tmp_path, [coder.shell(WRITE_REPORT).using(300, 30), prose, found]) as harness:
        harness.cast("one", coder)
        async with harness.open() as remit:
            result = await remit.delegate("one", task="Look around and write a report.", timeout=90)
            record = await remit.describe(result.session_id)
            assert result.status == "completed", explain(result, harness)
        assert result.summary == "Found three things. They are written down."
        assert ("report.md", len("three findings")) in [(artifact.path, artifact.size) for artifact in result.artifacts]
        assert record.tokens >= 870, "tokens reported by the model service are counted"
        assert "Look around and write a report." in harness.models.requests[0].text
        assert harness.models.requests[0].text.count(result.session_id) >= 1
        again = harness.models.requests[-1]
        assert again.answers >= 1, "earlier answers show that it is the same session"
        assert "could not be accepted" in again.last.text
        assert "Look around and write a report." in again.text
        await harness.wait_for_nobody()


async def test_hanging_agent_is_killed_at_its_deadline_and_returns_its_partial_file(coder: Coder, tmp_path: Path) -> None:
    """The return is partial with TIMEOUT and the file. No process is left, even one in a separate process session."""
    async with open_harness(tmp_path, [coder.shell(HALF_AND_HANG), Silence()]) as harness:
        harness.cast("one", coder)
        async with harness.open() as remit:
            handle = await remit.start("one", task="Take your time.", timeout=120)
            await harness.wait_for_file("half.txt")
            running = remit.engine.live()[handle.session_id]
            running.look(running.ends_at)  # simulates the clock: the deadline is two minutes away
            result = await asyncio.wait_for(handle.result(), 15)
            await harness.wait_for_nobody()
            assert (result.status, result.errors[0].code) == ("partial", "TIMEOUT"), explain(result, harness)
            assert "half.txt" in [artifact.path for artifact in result.artifacts]


@pytest.mark.parametrize("vendor", [CLAUDE, CODEX, OPENCODE], ids=lambda vendor: vendor.name)
async def test_budget_stops_a_turn_within_one_further_request(vendor: Coder, tmp_path: Path) -> None:
    """Each request of an endless turn costs 15 tokens and 0.0002. The seventh exceeds 100 tokens, the third exceeds a cost of 0.0005."""
    need(vendor)

    def endless(_: ModelRequest) -> Call:
        return vendor.shell("echo once more").using(10, 5)

    names = {"scripted": {"input": 10.0, "output": 20.0}, "scripted/scripted": {"input": 10.0, "output": 20.0}}
    async with open_harness(tmp_path, endless, prices=names) as harness:
        harness.cast("one", vendor, model="scripted/scripted" if vendor is OPENCODE else "scripted")
        async with harness.open() as remit:
            by_tokens, by_money = await asyncio.gather(
                remit.delegate("one", task="Count tokens.", timeout=120, budget=Limits(tokens=100)),
                remit.delegate("one", task="Count money.", timeout=120, budget=Limits(cost=0.0005)),
            )
            for result, words, passed in ((by_tokens, "Count tokens.", 7), (by_money, "Count money.", 3)):
                record = await remit.describe(result.session_id)
                asked = len([request for request in harness.models.requests if words in request.text])
                assert (result.status, result.stop_reason) == ("partial", "budget"), explain(result, harness)
                assert passed <= asked <= passed + 1, (asked, record.tokens, record.cost)
                assert record.tokens >= 15 * passed
                assert record.cost == pytest.approx(record.tokens / 15 * 0.0002)
        await harness.wait_for_nobody()


async def test_coding_agent_delegates_up_to_the_depth_limit(coder: Coder, tmp_path: Path) -> None:
    """Delegations over MCP from another process belong to the same tree and share its limits. Deeper ones are refused."""
    need(CLAUDE)

    def play(request: ModelRequest) -> Turn:
        is_first = "the first" in request.text
        if request.turn == 0 and is_first:
            return Call("delegate", target="two", parameters={"task": "You are the second."})
        if request.turn == 0:
            return Call("delegate", target="counter", parameters={"word": "abc"})
        return Say(valid_return(request, data={"heard": request.results[-1][:4000]}))

    async with open_harness(tmp_path, play, max_depth=2) as harness:
        harness.cast("one", coder, delegates=True)
        harness.cast("two", coder if coder is CODEX else CLAUDE, delegates=True)
        async with harness.open() as remit:
            result = await remit.delegate("one", task="You are the first.", timeout=120)
            tree = await remit.tree(result.session_id)
        assert result.status == "completed", explain(result, harness)
        second = next(record for record in tree if record.agent == "two")
        assert (second.depth, second.parent_id, second.state) == (2, result.session_id, "completed")
        assert "MAX_DEPTH_EXCEEDED" in second.result.data["heard"]
        assert [record.state for record in tree if record.agent == "counter"] in ([], ["refused"])
        await harness.wait_for_nobody()


async def test_cancelling_the_root_ends_every_process_below_two_vendors(tmp_path: Path) -> None:
    """The whole tree runs: claude, codex, and a Python function in a process with a child process."""
    need(CLAUDE, CODEX)

    def play(request: ModelRequest) -> Turn:
        target = "hand" if "the boss" in request.text else "sits"
        return Call("delegate", target=target, parameters={"task": "You are the hand."} if target == "hand" else {})

    async with open_harness(tmp_path, play) as harness:
        harness.cast("boss", CLAUDE, delegates=True)
        harness.cast("hand", CODEX, delegates=True)
        (harness.project / ".remit" / "agents" / "sits.py").write_text(SITS)
        async with harness.open() as remit:
            handle = await remit.start("boss", task="You are the boss.", timeout=120)
            pid = int((await harness.wait_for_file("half.txt")).read_text())
            assert look(pid) is not None
            await handle.cancel("enough")
            result = await asyncio.wait_for(handle.result(), 15)
            assert result.stop_reason == "cancelled", explain(result, harness)
            await harness.wait_for_nobody()
            assert look(pid) is None
            states = [(record.agent, record.depth, record.state) for record in await remit.tree(handle.session_id)]
        assert states == [("boss", 1, "cancelled"), ("hand", 2, "cancelled"), ("sits", 3, "cancelled")]


@pytest.mark.parametrize("coder", [CLAUDE, CODEX, OPENCODE], ids=lambda coder: coder.name)
async def test_rejected_api_key_is_reported_with_advice(coder: Coder, tmp_path: Path) -> None:
    """Vendor errors are mapped to remit errors with advice."""
    need(coder)
    async with open_harness(tmp_path, [Fail(401)]) as harness:
        harness.cast("one", coder)
        async with harness.open() as remit:
            result = await remit.delegate("one", task="Do what I want.", timeout=60)
        assert (result.status, result.errors[0].code) == ("failed", "AGENT_UNAVAILABLE"), explain(result, harness)
        assert "not logged in, or its key is not accepted" in result.errors[0].message
        assert "Log in once" in result.errors[0].recommendation


# ---- between turns

LATE = {"type": "timeout", "message": "Half is missing", "code": "TIMEOUT", "recoverable": True, "recommendation": "Go on."}


async def test_session_returns_its_result_at_the_soft_deadline(coder: Coder, tmp_path: Path) -> None:
    """The request arrives by the protocol or by a signal. The answer of the session becomes the return."""

    def play(request: ModelRequest) -> Turn:
        if "Time is nearly up" in request.last.text:
            return Say(valid_return(request, status="partial", errors=[LATE], data="handed in"))
        return coder.shell(HALF_AND_HANG)

    async with open_harness(tmp_path, play) as harness:
        harness.cast("one", coder)
        async with harness.open() as remit:
            handle = await remit.start("one", task="Take your time.", timeout=120)
            await harness.wait_for_file("half.txt")
            running = remit.engine.live()[handle.session_id]
            running.look(running.delegation.deadline.soft_at)  # simulates the clock: the deadline is two minutes away
            result = await asyncio.wait_for(handle.result(), 60)
            await harness.wait_for_nobody()
        assert (result.status, result.stop_reason, result.data) == ("partial", "finished", "handed in"), (result, harness.models.faults)
        asked = harness.models.requests[-1]
        assert asked.answers >= 1, "the request goes to the session that did the work"
        assert "Take your time." in asked.text


@pytest.mark.parametrize("coder", CODERS, ids=lambda coder: coder.name.replace(" ", "-"))
async def test_stopped_coding_agent_resumes_in_its_own_session(coder: Coder, tmp_path: Path) -> None:
    """`resume=` continues the recorded session of the vendor."""
    need(coder)

    def play(request: ModelRequest) -> Turn:
        return Say(valid_return(request, data="went on")) if "You were interrupted" in request.last.text else coder.shell(HALF_AND_HANG)

    async with open_harness(tmp_path, play) as harness:
        harness.cast("one", coder)
        async with harness.open() as remit:
            handle = await remit.start("one", task="Take your time.", timeout=120)
            await harness.wait_for_file("half.txt")
            await handle.cancel("later")
            stopped = await asyncio.wait_for(handle.result(), 15)
            assert (stopped.stop_reason, stopped.errors[0].code) == ("cancelled", "CANCELLED"), (stopped, harness.models.faults)
            await harness.wait_for_nobody()
            result = await remit.delegate("one", task="Take your time.", resume=stopped.session_id, timeout=90)
        assert (result.status, result.data) == ("completed", "went on"), (result, harness.models.faults)
        assert harness.models.requests[-1].answers >= 1, "earlier answers show that it is the same session"


async def test_tool_outside_the_allow_list_is_denied_and_recorded(tmp_path: Path) -> None:
    """Codex uses its sandbox instead of a list. The next test covers opencode."""
    need(CLAUDE)
    script = [CLAUDE.shell("printf 'bad' > bad.txt"), Reply(lambda request: Say(valid_return(request)))]
    async with open_harness(tmp_path, script) as harness:
        harness.cast("one", CLAUDE, allow=["read"])
        async with harness.open() as remit:
            result = await remit.delegate("one", task="Write a file.", timeout=90)
            chunks = [event.body["chunk"] for event in await remit.events(result.session_id) if event.kind is EventKind.DATA]
        assert not (harness.project / "bad.txt").exists()
        decisions = [chunk["permission"]["decision"] for chunk in chunks if isinstance(chunk, dict) and "permission" in chunk]
        assert decisions == ["denied"], (result, harness.models.faults)


async def test_project_settings_do_not_widen_the_allow_list_of_opencode(tmp_path: Path) -> None:
    """Any clone may contain such settings, and opencode prefers settings of one agent over general ones."""
    need(OPENCODE)
    generous = {
        "permission": {"*": "ask", "bash": {"*": "allow"}},
        "default_agent": "theirs",
        "agent": {"build": {"permission": {"bash": "allow"}}, "theirs": {"mode": "primary", "permission": {"*": "allow"}}},
    }
    script = [OPENCODE.shell("printf 'bad' > bad.txt"), Reply(lambda request: Say(valid_return(request)))]
    async with open_harness(tmp_path, script) as harness:
        harness.cast("one", OPENCODE, allow=["read"])
        (harness.project / "opencode.json").write_text(json.dumps(generous))
        async with harness.open() as remit:
            await remit.delegate("one", task="Write a file.", timeout=90)
        assert not (harness.project / "bad.txt").exists()
        assert any("no tool of that name is offered" in fault for fault in harness.models.faults), "a denied tool is not offered"


@pytest.mark.parametrize("coder", [CLAUDE, OPENCODE], ids=lambda coder: coder.name.replace(" ", "-"))
async def test_instructions_never_trigger_a_project_command(coder: Coder, tmp_path: Path) -> None:
    """A command runs programs without approval, and an agent file that begins with its name would call it."""
    need(coder)
    async with open_harness(tmp_path, [Reply(lambda request: Say(valid_return(request)))]) as harness:
        harness.cast("one", coder, allow=["read"], instructions="/trap now")
        for folder in (".claude/commands", ".opencode/command"):
            (harness.project / folder).mkdir(parents=True)
            (harness.project / folder / "trap.md").write_text("---\nallowed-tools: Bash\n---\nIt is !`printf 'bad' > bad.txt` done.\n")
        async with harness.open() as remit:
            result = await remit.delegate("one", task="Do nothing.", timeout=90)
        assert result.status == "completed", (result, harness.models.faults)
        assert "/trap now" in harness.models.requests[0].text
        assert not (harness.project / "bad.txt").exists()
