"""Issue 3, item 2: whatever speaks the Agent Client Protocol is handed work like a function, under the same promises."""

import asyncio
import json
import subprocess
import sys
import time
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from process_desk import NotingDesk

from remit import Remit
from remit.agents.acp.agent import AcpAgent
from remit.agents.definition import definition_of
from remit.agents.process import ProcessPool
from remit.core.errors import AgentCrashed, Failed, Misused, Unavailable
from remit.core.events import EventKind
from remit.core.result import Status, StopReason
from remit.flow.context import Repair
from remit.system.interpreter import remit_command
from remit.system.processes import look, marked
from support.pace import allowed
from support.witness import LoopWatch

AGENT = Path(__file__).with_name("acp_agent.py")


class House:
    def __init__(self, root: Path) -> None:
        self.root = root
        self.owner = uuid.uuid4().hex[:8]
        self.pool = ProcessPool(project="test", owner_id=self.owner)
        self.desk = NotingDesk(root)
        self.desk.scratch.mkdir(exist_ok=True)
        self.log = root / "agent.log"

    def agent(self, mode: str, **table: Any) -> AcpAgent:
        environment = {"ACP_LOG": str(self.log), **table.pop("environment", {})}
        start_seconds = table.pop("start_seconds", 30.0)
        said = {"kind": "acp", "command": [sys.executable, str(AGENT), mode], "environment": environment, **table}
        return AcpAgent(definition_of("agent", said, source="test"), self.pool, start_seconds=start_seconds)

    async def ask(self, mode: str, **table: Any) -> str:
        return await self.agent(mode, **table).perform(self.desk.context(), {"task": "Say hello."})

    def logged(self, method: str) -> list[dict[str, Any]]:
        lines = [json.loads(line) for line in self.log.read_text().splitlines()] if self.log.exists() else []
        return [line for line in lines if line.get("method") == method or method in line]

    async def wait_prompted(self) -> None:
        while not self.logged("prompt"):  # noqa: ASYNC110 - it is another process that writes the log
            await asyncio.sleep(0.05)

    def noted(self, kind: str) -> list[Any]:
        return [note[1] for note in self.desk.notes if note[0] == kind]

    @asynccontextmanager
    async def remit(self, mode: str, **table: Any) -> AsyncIterator[Remit]:
        async with Remit.open(self.root, agents=[self.agent(mode, **table)]) as remit:
            yield remit

    def left(self) -> list[int]:
        """Processes of delegations; what starts them is of the pool."""
        return marked(f"test:{self.owner}:sess")


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[House]:
    made = House(tmp_path)
    yield made
    await made.pool.close()
    assert marked(f"test:{made.owner}:") == []


# ---- the plain run


async def test_its_last_message_is_the_answer_and_no_process_is_left(house: House) -> None:
    answer = json.loads(await house.ask("answer"))
    assert answer["status"] == "completed"
    assert answer["metadata"]["session_id"] == house.desk.delegation.session_id
    assert house.left() == []


async def test_a_delegation_to_it_completes(house: House) -> None:
    async with house.remit("answer") as remit:
        result = await remit.delegate("agent", task="Say hello.")
    assert (result.status, result.stop_reason) == (Status.COMPLETED, StopReason.FINISHED)


async def test_it_works_in_the_workspace_and_is_offered_no_files_and_no_terminal(house: House) -> None:
    (house.root / "part").mkdir()
    await house.ask("answer", folder="part")
    assert house.logged("new") == [{"method": "new", "cwd": str(house.root / "part"), "servers": []}]
    offered = house.logged("initialize")[0]["capabilities"]
    assert offered["fs"] == {"field_meta": None, "read_text_file": False, "write_text_file": False}
    assert offered["terminal"] is False


async def test_a_request_for_a_file_is_refused(house: House) -> None:
    assert json.loads(await house.ask("asks-for-files"))["data"] == -32601


async def test_one_that_may_delegate_is_given_the_tools_of_remit(house: House) -> None:
    await house.ask("answer", delegates=True)
    (server,) = house.logged("new")[0]["servers"]
    assert [server["command"], *server["args"]] == [*remit_command(), "mcp"]
    assert {"name": "REMIT_SESSION", "value": house.desk.delegation.session_id}.items() <= server["env"][0].items()


async def test_one_that_is_to_delegate_is_not_started_without_the_tools_to(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mcp", None)
    with pytest.raises(Unavailable, match=r"delegates = true needs pip install 'remit\[mcp\]'"):
        await house.ask("answer", delegates=True)
    assert house.logged("initialize") == []


async def test_the_session_is_kept_as_soon_as_it_is_known(house: House) -> None:
    await house.ask("answer")
    (kept,) = house.noted("checkpoint")
    assert kept["vendor"] == "acp"
    assert kept["session"].startswith("conversation-")


async def test_the_model_is_chosen_when_it_is_offered_and_missed_aloud_when_not(house: House) -> None:
    await house.ask("answer", model="large")
    assert house.logged("set") == [{"method": "set", "option": "model", "value": "large"}]
    await house.ask("answer", model="enormous")
    assert any("enormous" in note for note in house.noted("progress"))


# ---- what it says while it works


async def test_tools_are_progress_and_thoughts_are_no_part_of_the_answer(house: House) -> None:
    answer = await house.ask("tools")
    assert json.loads(answer)["status"] == "completed"
    tools = [chunk["tool"] for chunk in house.noted("emit") if "tool" in chunk and isinstance(chunk, dict)]
    assert tools == [{"id": "1", "kind": "read", "title": "Reading a.py", "status": "completed"}]
    assert [line for line in house.noted("progress") if "a.py" in line] == ["read: Reading a.py"]
    assert not any("a thought" in str(chunk) for chunk in house.noted("emit"))
    assert [chunk for chunk in house.noted("emit") if isinstance(chunk, str)] == ["Let me look at the file first. "], "no return"


async def test_a_plan_is_progress_usage_is_spent_once_and_news_from_the_future_do_no_harm(house: House) -> None:
    assert json.loads(await house.ask("plan"))["status"] == "completed"
    assert ("progress", "Plan: 1 of 2 done, now: write", 0.5) in house.desk.notes
    assert {"plan": [{"step": "read", "status": "completed"}, {"step": "write", "status": "in_progress"}]} in house.noted("emit")
    spent = [note[1:] for note in house.desk.notes if note[0] == "spend"]
    assert spent == [(100, 0.5), (600, 0.75), (200, 0.0)]


async def test_text_plan_tools_and_usage_reach_whoever_follows_it(house: House) -> None:
    """Item 2: streamed, in the events that every agent has."""
    for mode, kind, told in (
        ("tools", EventKind.DATA, lambda body: "tool" in body["chunk"]),
        ("tools", EventKind.DATA, lambda body: body["chunk"] == "Let me look at the file first. "),
        ("plan", EventKind.DATA, lambda body: "plan" in body["chunk"]),
        ("plan", EventKind.SPENT, lambda body: body == {"tokens": 900, "cost": 1.25}),
    ):
        async with house.remit(mode) as remit:
            handle = await remit.start("agent", task="Say hello.")
            events = [event async for event in handle.stream()]
        assert any(event.kind is kind and told(event.body) for event in events), (mode, events)


async def test_what_it_uses_is_drawn_from_the_budget_of_the_tree_and_stops_it(house: House) -> None:
    """S8: counted while it works, not when it has ended."""
    async with house.remit("spends") as remit:
        result = await asyncio.wait_for(remit.delegate("agent", task="Say hello.", budget={"tokens": 500}, timeout=60), 30)
        assert house.left() == []
    assert (result.status, result.stop_reason) == (Status.PARTIAL, StopReason.BUDGET)


async def test_permission_is_given_by_the_allow_list_once_and_every_decision_is_recorded(house: House) -> None:
    answer = await house.ask("permission", allow=["read", "execute:pytest *"])
    assert json.loads(answer)["data"] == ["yes", "no", "yes", "cancelled"]
    decided = [chunk["permission"] for chunk in house.noted("emit") if isinstance(chunk, dict) and "permission" in chunk]
    assert [(one["title"], one["decision"]) for one in decided][:3] == [
        ("Reading a.py", "allowed"),
        ("rm -rf /", "denied"),
        ("pytest -q", "allowed"),
    ]
    lines = [line for line in house.noted("progress") if "ermission" in line]
    assert lines[0] == "Permission denied for execute: rm -rf / (nothing in its allow-list fits)."
    assert not any("pytest" in line for line in lines), "what is allowed is told when it is used"


async def test_one_that_would_not_ask_by_itself_is_told_to_unless_its_definition_says_otherwise(house: House) -> None:
    await house.ask("answer")
    assert json.loads(house.logged("asking")[0]["asking"])["*"] == "ask"
    await house.ask("answer", environment={"OPENCODE_PERMISSION": "{}"})
    assert house.logged("asking")[1]["asking"] == "{}"


async def test_it_is_put_into_the_mode_in_which_it_asks_whatever_mode_it_comes_in(house: House) -> None:
    await house.ask("in-another-mode")
    (said,) = house.logged("set")
    assert said["option"] == "mode"
    assert said["value"].startswith("remit-")


async def test_one_that_must_be_told_to_ask_and_cannot_be_is_not_run(house: House) -> None:
    with pytest.raises(Unavailable, match="nothing holds it to its list"):
        await house.ask("opencode-of-old")
    assert house.logged("prompt") == []


async def test_without_an_allow_list_everything_is_denied(house: House) -> None:
    assert json.loads(await house.ask("permission"))["data"] == ["no", "no", "no", "cancelled"]


# ---- answers that are none


async def test_prose_is_repaired_in_the_same_session_of_the_same_process(house: House) -> None:
    """S3.7: asked once more, with the faults; the first answer is kept."""
    async with house.remit("prose") as remit:
        result = await remit.delegate("agent", task="Say hello.")
    assert result.status is Status.COMPLETED
    first, second = house.logged("prompt")
    assert first["pid"] == second["pid"]
    assert "could not be accepted" in second["text"]
    assert "## Task" not in second["text"]
    assert any("repaired" in warning for warning in result.warnings)


async def test_prose_twice_is_an_invalid_return_with_the_prose_kept(house: House) -> None:
    async with house.remit("prose-always") as remit:
        result = await remit.delegate("agent", task="Say hello.")
        assert house.left() == []
    assert (result.status, result.errors[0].code) == (Status.FAILED, "VALIDATION_FAILED")
    assert len(house.logged("prompt")) == 2
    assert "believe me" in (house.root / result.artifacts[0].path).read_text()


async def test_a_repair_without_its_process_tells_everything_again(house: House) -> None:
    house.desk.repair = Repair(faults=("summary: it is missing",), original="Done.")
    await house.ask("answer")
    (asked,) = house.logged("prompt")
    assert "## Task" in asked["text"]
    assert "summary: it is missing" in asked["text"]


async def test_a_refusal_fails_with_its_words(house: House) -> None:
    with pytest.raises(Failed, match=r"refusal.*I will not do that"):
        await house.ask("refuses")


async def test_running_out_of_tokens_is_said(house: House) -> None:
    with pytest.raises(Failed, match="max_tokens"):
        await house.ask("out-of-tokens")


async def test_an_error_of_the_agent_is_told_in_its_words(house: House) -> None:
    with pytest.raises(Failed, match="the model is down"):
        await house.ask("errs")


async def test_text_is_a_value_for_an_agent_that_answers_with_one(house: House) -> None:
    assert await house.ask("prose-always", answers="value") == "All of it is done, believe me."


# ---- agents that are not there


async def test_one_that_is_not_logged_in_is_unavailable_with_advice(house: House) -> None:
    with pytest.raises(Unavailable, match="not logged in") as caught:
        await house.ask("needs-auth")
    assert "acme login" in caught.value.advice


async def test_a_key_that_it_was_given_lets_it_in(house: House) -> None:
    await house.ask("needs-key", environment={"ACME_KEY": "k"})
    assert house.logged("authenticate") == [{"method": "authenticate", "way": "key"}]


async def test_a_command_that_is_not_there_is_unavailable(house: House) -> None:
    with pytest.raises(Unavailable, match="no-such-agent"):
        await house.ask("answer", command=["no-such-agent"])


def test_without_the_protocol_library_it_is_said_what_to_install() -> None:
    code = "import sys; sys.modules['acp'] = None; from remit.agents.acp.agent import _protocol; _protocol()"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert "pip install 'remit[acp]'" in ran.stderr.splitlines()[-1]


async def test_another_version_of_the_protocol_is_unavailable(house: House) -> None:
    with pytest.raises(Unavailable, match="version 99"):
        await house.ask("other-version")


async def test_one_that_never_answers_is_given_up_in_time(house: House) -> None:
    with pytest.raises(Unavailable, match=r"did not answer initialize.*acme 1\.0"):
        await house.ask("mute", start_seconds=4)
    assert house.left() == []


async def test_one_that_never_answers_is_given_up_before_a_short_deadline(house: House) -> None:
    """Else nothing but a timeout would be told."""
    async with house.remit("mute") as remit:
        result = await remit.delegate("agent", task="Say hello.", timeout=9)
    assert result.errors[0].code == "AGENT_UNAVAILABLE", result
    assert "did not answer initialize" in result.errors[0].message
    assert "is this an ACP agent?" in result.errors[0].message


async def test_one_that_repeats_what_it_is_told_speaks_no_protocol(house: House) -> None:
    with pytest.raises(AgentCrashed, match="does not speak the Agent Client Protocol; it says back what it is told") as caught:
        await house.ask("answer", command=["cat"])
    assert "`cat`" in caught.value.advice


async def test_one_that_speaks_something_else_is_told_so_at_once(house: House) -> None:
    with pytest.raises(AgentCrashed, match="does not speak the Agent Client Protocol"):
        await house.ask("garbage")
    assert house.left() == []


async def test_one_that_ends_before_it_speaks_is_a_crash_with_its_last_words(house: House) -> None:
    with pytest.raises(AgentCrashed) as caught:
        await house.ask("dies-first")
    assert caught.value.exit_code == 1
    assert "no such model" in caught.value.stderr_tail


async def test_parameters_are_checked(house: House) -> None:
    with pytest.raises(Misused, match="task"):
        house.agent("answer").check({})


# ---- agents that break


async def test_one_that_dies_is_a_crash_with_exit_code_and_last_words(house: House) -> None:
    with pytest.raises(AgentCrashed, match="exit code 7") as caught:
        await house.ask("dies")
    assert "the last words of the agent" in caught.value.stderr_tail


async def test_half_a_line_is_a_crash(house: House) -> None:
    with pytest.raises(AgentCrashed, match="exit code 3"):
        await house.ask("half-a-line")


async def test_a_line_without_end_is_a_crash(house: House) -> None:
    with pytest.raises(AgentCrashed, match="without end"):
        await house.ask("endless-line")
    assert house.left() == []


async def test_a_flood_is_lived_through(house: House) -> None:
    """50 MB: the answer at its end is found, and the loop is held by nobody."""
    async with LoopWatch() as loop, house.remit("floods") as remit:
        result = await remit.delegate("agent", task="Say hello.")
    assert result.status is Status.COMPLETED
    assert loop.held < 5.0


async def test_a_daemon_it_forked_dies_with_it(house: House) -> None:
    await house.ask("daemon")
    (forked,) = house.logged("daemon")
    assert look(forked["daemon"]) is None


# ---- time


@pytest.mark.parametrize("mode", ["silence", "ignores-cancel"])
async def test_at_its_deadline_it_is_killed_and_what_it_left_is_handed_back(house: House, mode: str) -> None:
    """S2.5, S2.6."""
    async with house.remit(mode) as remit:
        began = time.monotonic()
        result = await remit.delegate("agent", task="Say hello.", timeout=6)
        took = time.monotonic() - began
        assert house.left() == []
    assert (result.status, result.stop_reason) == (Status.PARTIAL, StopReason.DEADLINE)
    assert any(artifact.path.endswith("half-written.txt") for artifact in result.artifacts)
    assert took < allowed(9)


async def test_at_the_soft_deadline_it_is_asked_to_hand_in_and_that_is_its_answer(house: House) -> None:
    """S2.4: told by the protocol, in the same session."""
    async with house.remit("hands-in") as remit:
        handle = await remit.start("agent", task="Say hello.", timeout=40)
        await house.wait_prompted()
        running = remit.engine.running[handle.session_id]
        running.hand_in = True
        running.hand_in_event.set()
        result = await handle.result()
    assert (result.status, result.data) == (Status.PARTIAL, "handed in")
    assert house.logged("cancel")
    assert "Time is nearly up" in house.logged("prompt")[1]["text"]


async def test_a_cancel_is_told_to_it_and_nothing_is_left(house: House) -> None:
    async with house.remit("silence") as remit:
        handle = await remit.start("agent", task="Say hello.", timeout=60)
        await house.wait_prompted()
        await handle.cancel("enough")
        result = await handle.result()
        assert house.left() == []
        told = [event.body for event in await remit.events(result.session_id) if event.kind is EventKind.PROGRESS]
    assert result.stop_reason is StopReason.CANCELLED
    assert "nearly up" not in str(told)


# ---- going on


async def test_a_kept_session_is_loaded_and_what_is_said_again_does_not_count(house: House) -> None:
    house.desk.saved = {"vendor": "acp", "session": "conversation-1"}
    answer = await house.ask("loads")
    assert json.loads(answer)["status"] == "completed"
    assert house.logged("load") == [{"method": "load", "session": "conversation-1"}]
    assert not any("long ago" in str(chunk) for chunk in house.noted("emit"))
    assert [note[1:] for note in house.desk.notes if note[0] == "spend"] == [(100, 0.0)]


async def test_one_that_was_stopped_goes_on_in_its_session_when_it_is_resumed(house: House) -> None:
    """S2.6, item 2: the handle is kept with the delegation."""
    async with house.remit("loads-later") as remit:
        handle = await remit.start("agent", task="Say hello.", timeout=60)
        await house.wait_prompted()
        await handle.cancel("later")
        stopped = await handle.result()
        result = await remit.delegate("agent", task="Say hello.", resume=stopped.session_id)
    assert (result.status, result.data) == (Status.COMPLETED, "went on"), result
    (loaded,) = house.logged("load")
    assert loaded["session"].startswith("conversation-")
    assert len(house.logged("new")) == 1


async def test_one_that_cannot_load_a_session_begins_anew_and_says_so(house: House) -> None:
    house.desk.saved = {"vendor": "acp", "session": "conversation-1"}
    await house.ask("answer")
    assert any("begins a new one" in note for note in house.noted("progress"))
    assert len(house.logged("new")) == 1
