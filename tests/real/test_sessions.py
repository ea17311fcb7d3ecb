"""Real coding agents between their turns: told to hand in, taken up again, held to what they may do; agent files, and what is detected.

As in `test_coding_agents.py`: their models are scripted, everything else is the program that users run.
"""

import asyncio
import json
import os
import re
from pathlib import Path

import pytest
from stage import CLAUDE, CODERS, CODEX, OPENCODE, OPENCODE_ACP, TOOLS, Coder, need, staged

from remit.agents.coding.detect import detect
from remit.core.events import EventKind
from remit.testing.models import ModelRequest, Reply, Say, Turn, valid_return

pytestmark = pytest.mark.timeout(150)
HANG = "printf 'half' > half.txt; setsid sleep 3600 & sleep 3600"
LATE = {"type": "timeout", "message": "Half is missing", "code": "TIMEOUT", "recoverable": True, "recommendation": "Go on."}


@pytest.fixture(params=CODERS, ids=lambda coder: coder.name.replace(" ", "-"))
def coder(request: pytest.FixtureRequest) -> Coder:
    chosen: Coder = request.param
    need(chosen)
    return chosen


async def test_at_the_soft_deadline_it_is_told_to_hand_in_and_its_session_does(coder: Coder, tmp_path: Path) -> None:
    """S2.4, item 4: by the protocol or by a signal; what it hands in then is its return."""

    def play(request: ModelRequest) -> Turn:
        if "Time is nearly up" in request.last.text:
            return Say(valid_return(request, status="partial", errors=[LATE], data="handed in"))
        return coder.shell(HANG)

    async with staged(tmp_path, play) as stage:
        stage.cast("one", coder)
        async with stage.open() as remit:
            handle = await remit.start("one", task="Take your time.", timeout=120)
            await stage.wait_for_file("half.txt")
            running = remit.engine.running[handle.session_id]
            running.hand_in = True  # the clock's part: its soft deadline is two minutes away
            running.hand_in_event.set()
            result = await asyncio.wait_for(handle.result(), 60)
            await stage.wait_for_nobody()
        assert (result.status, result.stop_reason, result.data) == ("partial", "finished", "handed in"), (result, stage.models.faults)
        asked = stage.models.requests[-1]
        assert asked.answers >= 1, "it is asked in the session that did the work"
        assert "Take your time." in asked.text


@pytest.mark.parametrize("coder", [CLAUDE, CODEX, OPENCODE_ACP], ids=lambda coder: coder.name.replace(" ", "-"))
async def test_one_that_was_stopped_is_taken_up_in_its_own_session(coder: Coder, tmp_path: Path) -> None:
    """S2.6, items 2 and 3: the handle of the vendor's session is kept, and `resume=` leads back into it."""
    need(coder)

    def play(request: ModelRequest) -> Turn:
        return Say(valid_return(request, data="went on")) if "You were interrupted" in request.last.text else coder.shell(HANG)

    async with staged(tmp_path, play) as stage:
        stage.cast("one", coder)
        async with stage.open() as remit:
            handle = await remit.start("one", task="Take your time.", timeout=120)
            await stage.wait_for_file("half.txt")
            await handle.cancel("later")
            stopped = await asyncio.wait_for(handle.result(), 15)
            assert (stopped.stop_reason, stopped.errors[0].code) == ("cancelled", "CANCELLED"), (stopped, stage.models.faults)
            await stage.wait_for_nobody()
            result = await remit.delegate("one", task="Take your time.", resume=stopped.session_id, timeout=90)
        assert (result.status, result.data) == ("completed", "went on"), (result, stage.models.faults)
        assert stage.models.requests[-1].answers >= 1, "the new question holds what was said before: it is the same session"


async def test_what_its_allow_list_does_not_name_is_denied_and_recorded(tmp_path: Path) -> None:
    """Items 2 and 3: allow-list, else deny, and recorded. Codex has its sandbox in place of a list; opencode is tried below."""
    need(CLAUDE)
    script = [CLAUDE.shell("printf 'bad' > bad.txt"), Reply(lambda request: Say(valid_return(request)))]
    async with staged(tmp_path, script) as stage:
        stage.cast("one", CLAUDE, allow=["read"])
        async with stage.open() as remit:
            result = await remit.delegate("one", task="Write a file.", timeout=90)
            chunks = [event.body["chunk"] for event in await remit.events(result.session_id) if event.kind is EventKind.DATA]
        assert not (stage.project / "bad.txt").exists()
        decisions = [chunk["permission"]["decision"] for chunk in chunks if isinstance(chunk, dict) and "permission" in chunk]
        assert decisions == ["denied"], (result, stage.models.faults)


async def test_settings_of_the_project_for_opencode_do_not_widen_its_allow_list_over_acp(tmp_path: Path) -> None:
    """Item 2: they come along with any clone, and what they say of one of its agents goes before what is said of all."""
    need(OPENCODE_ACP)
    generous = {
        "permission": {"*": "ask", "bash": {"*": "allow"}},
        "default_agent": "theirs",
        "agent": {"build": {"permission": {"bash": "allow"}}, "theirs": {"mode": "primary", "permission": {"*": "allow"}}},
    }
    script = [OPENCODE_ACP.shell("printf 'bad' > bad.txt"), Reply(lambda request: Say(valid_return(request)))]
    async with staged(tmp_path, script) as stage:
        stage.cast("one", OPENCODE_ACP, allow=["read"])
        (stage.project / "opencode.json").write_text(json.dumps(generous))
        async with stage.open() as remit:
            result = await remit.delegate("one", task="Write a file.", timeout=90)
            chunks = [event.body["chunk"] for event in await remit.events(result.session_id) if event.kind is EventKind.DATA]
        assert not (stage.project / "bad.txt").exists()
        decisions = [chunk["permission"]["decision"] for chunk in chunks if isinstance(chunk, dict) and "permission" in chunk]
        assert decisions == ["denied"], (result, stage.models.faults)


@pytest.mark.parametrize("coder", [CLAUDE, OPENCODE_ACP], ids=lambda coder: coder.name.replace(" ", "-"))
async def test_no_instructions_are_taken_for_a_command_of_the_project(coder: Coder, tmp_path: Path) -> None:
    """Items 3 and 10: a command runs programs unasked, and an agent file that begins with its name would call it."""
    need(coder)
    async with staged(tmp_path, [Reply(lambda request: Say(valid_return(request)))]) as stage:
        stage.cast("one", coder, allow=["read"], instructions="/trap now")
        for folder in (".claude/commands", ".opencode/command"):
            (stage.project / folder).mkdir(parents=True)
            (stage.project / folder / "trap.md").write_text("---\nallowed-tools: Bash\n---\nIt is !`printf 'bad' > bad.txt` done.\n")
        async with stage.open() as remit:
            result = await remit.delegate("one", task="Do nothing.", timeout=90)
        assert result.status == "completed", (result, stage.models.faults)
        assert "/trap now" in stage.models.requests[0].text
        assert not (stage.project / "bad.txt").exists()


async def test_an_agent_file_is_carried_out_by_the_coding_agent_that_is_declared(tmp_path: Path) -> None:
    """Item 10: its words reach the model before the task, and its return is checked under its own name."""
    need(CLAUDE)
    async with staged(tmp_path, [Reply(lambda request: Say(valid_return(request)))]) as stage:
        stage.cast("coder", CLAUDE)
        files = stage.project / ".claude" / "agents"
        files.mkdir(parents=True)
        (files / "reviewer.md").write_text("---\nname: reviewer\ndescription: Reviews code.\ntools: Read\n---\nYou review code.\n")
        async with stage.open() as remit:
            result = await remit.delegate("reviewer", task="Look at it.", timeout=90)
        assert (result.status, result.metadata.agent_type) == ("completed", "reviewer"), (result, stage.models.faults)
        asked = stage.models.requests[0].text
        assert asked.index("You review code.") < asked.index("Look at it.")


async def test_what_is_installed_is_detected_with_its_version(tmp_path: Path) -> None:
    """Item 3: `remit agents --detect`; a key that is set counts as a login."""
    need(CLAUDE, CODEX, OPENCODE)
    environment = {"PATH": f"{TOOLS}:{os.environ['PATH']}", "HOME": str(tmp_path), "ANTHROPIC_API_KEY": "k", "OPENAI_API_KEY": "k"}
    found = {one.known.name: one for one in (await detect(environment))[0]}
    assert {"claude", "codex", "opencode"} <= set(found)
    for name in ("claude", "codex", "opencode"):
        assert re.fullmatch(r"\d+\.\d+\.\d+.*", found[name].version), found[name]
    assert found["claude"].is_usable
