"""Agents that speak the Agent Client Protocol: their answers, permissions, failures, deadlines and sessions."""

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from recording_backend import ProcessHarness, process_harness_fixture

from remit import AgentCrashed, Failed, Misused, Remit, Status, StopReason, Unavailable
from remit.agents.acp.acp_agent import AcpAgent
from remit.agents.definition import definition_of
from remit.system.interpreter import remit_command
from support.witness import LoopWatch

AGENT = Path(__file__).with_name("acp_agent.py")


class AcpHarness(ProcessHarness):
    @property
    def log(self) -> Path:
        return self.root / "agent.log"

    def agent(self, mode: str, **table: Any) -> AcpAgent:
        environment = {"ACP_LOG": str(self.log), **table.pop("environment", {})}
        output = {"kind": "acp", "command": [sys.executable, str(AGENT), mode], "environment": environment, **table}
        return AcpAgent(definition_of("agent", output, source="test"), SimpleNamespace(processes=self.pool))

    async def ask(self, mode: str, **table: Any) -> str:
        return await self.agent(mode, **table).perform(self.backend.context(), {"task": "Say hello."})

    def logged(self, method: str) -> list[dict[str, Any]]:
        lines = [json.loads(line) for line in self.log.read_text().splitlines()] if self.log.exists() else []
        return [line for line in lines if line.get("method") == method or method in line]

    async def wait_prompted(self) -> None:
        while not self.logged("prompt"):  # noqa: ASYNC110 - another process writes the log
            await asyncio.sleep(0.05)

    @asynccontextmanager
    async def remit(self, mode: str, **table: Any) -> AsyncIterator[Remit]:
        async with Remit.open(self.root, agents=[self.agent(mode, **table)]) as remit:
            yield remit


harness = process_harness_fixture(AcpHarness)


# ---- answers


async def test_last_message_is_the_answer_without_file_or_terminal_access(harness: AcpHarness) -> None:
    (harness.root / "part").mkdir()
    answer = json.loads(await harness.ask("answer", folder="part"))
    assert (answer["status"], answer["metadata"]["session_id"]) == ("completed", harness.backend.delegation.session_id)
    assert harness.left() == []
    assert harness.logged("new") == [{"method": "new", "cwd": str(harness.root / "part"), "servers": []}]
    offered = harness.logged("initialize")[0]["capabilities"]
    assert offered["fs"] == {"field_meta": None, "read_text_file": False, "write_text_file": False}
    assert offered["terminal"] is False
    (stored,) = harness.noted("checkpoint")
    assert (stored["vendor"], stored["session"].partition("-")[0]) == ("acp", "conversation")


async def test_delegating_agent_gets_the_mcp_tools_or_does_not_start(harness: AcpHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    await harness.ask("answer", delegates=True)
    (server,) = harness.logged("new")[0]["servers"]
    assert [server["command"], *server["args"]] == [*remit_command(), "mcp"]
    assert {"name": "REMIT_SESSION", "value": harness.backend.delegation.session_id}.items() <= server["env"][0].items()
    harness.log.unlink()
    monkeypatch.setitem(sys.modules, "mcp", None)
    with pytest.raises(Unavailable, match=r"delegates = true needs pip install 'remit\[mcp\]'"):
        await harness.ask("answer", delegates=True)
    assert harness.logged("initialize") == []


# ---- updates


async def test_tool_calls_are_progress_and_thoughts_are_not_in_the_answer(harness: AcpHarness) -> None:
    assert json.loads(await harness.ask("tools"))["status"] == "completed"
    tools = [chunk["tool"] for chunk in harness.noted("emit") if "tool" in chunk and isinstance(chunk, dict)]
    assert tools == [{"id": "1", "kind": "read", "title": "Reading a.py", "status": "completed"}]
    assert [line for line in harness.noted("progress") if "a.py" in line] == ["read: Reading a.py"]
    assert not any("a thought" in str(chunk) for chunk in harness.noted("emit"))
    assert [chunk for chunk in harness.noted("emit") if isinstance(chunk, str)] == ["Let me look at the file first. "], (
        "the return is not streamed"
    )


async def test_usage_is_charged_to_the_tree_budget_and_stops_the_agent(harness: AcpHarness) -> None:
    """Usage is counted while the agent works, not after it ends."""
    async with harness.remit("spends") as remit:
        result = await asyncio.wait_for(remit.delegate("agent", task="Say hello.", budget={"tokens": 500}, timeout=60), 30)
        assert harness.left() == []
    assert (result.status, result.stop_reason) == (Status.PARTIAL, StopReason.BUDGET)


async def test_allow_list_grants_permissions_once_and_records_each_decision(harness: AcpHarness) -> None:
    assert json.loads(await harness.ask("permission"))["data"] == ["no", "no", "no", "cancelled"], (
        "without an allow list everything is denied"
    )
    harness.backend.notes.clear()
    answer = await harness.ask("permission", allow=["read", "execute:pytest *"])
    assert json.loads(answer)["data"] == ["yes", "no", "yes", "cancelled"]
    decided = [chunk["permission"] for chunk in harness.noted("emit") if isinstance(chunk, dict) and "permission" in chunk]
    assert [(one["title"], one["decision"]) for one in decided][:3] == [
        ("Reading a.py", "allowed"),
        ("rm -rf /", "denied"),
        ("pytest -q", "allowed"),
    ]
    lines = [line for line in harness.noted("progress") if "ermission" in line]
    assert lines[0] == "Permission denied for execute: rm -rf / (nothing in its allow-list fits)."
    assert not any("pytest" in line for line in lines), "an allowed call is reported when it runs"


@pytest.mark.parametrize(
    ("mode", "error", "message", "more"),
    [
        ("refuses", Failed, r"refusal.*I will not do that", ""),
        ("errs", Failed, "the model is down", ""),
        ("needs-auth", Unavailable, "not logged in: .*no key", "pass_environment"),
        ("other-version", Unavailable, "version 99", ""),
        ("mute", Unavailable, r"did not answer initialize.*acme 1\.0", ""),
        ("garbage", AgentCrashed, "It printed: acme 1.0", "starts an agent of the Agent Client Protocol"),
        ("opencode", Unavailable, "is OpenCode", 'kind = "opencode"'),
        ("dies", AgentCrashed, "exit code 7", "the last words of the agent"),
        ("endless-line", AgentCrashed, "ended before it answered session/prompt", ""),
    ],
)
async def test_failure_names_its_cause_and_leaves_no_process(
    harness: AcpHarness, mode: str, error: type[Exception], message: str, more: str
) -> None:
    if mode == "mute":  # a third of its time is for its start, at least 2 seconds
        harness.backend.limit(6.0)
    with pytest.raises(error, match=message) as caught:
        await harness.ask(mode)
    assert more in f"{getattr(caught.value, 'advice', '')} {getattr(caught.value, 'stderr_tail', '')}"
    assert harness.left() == []


async def test_missing_or_echoing_command_is_reported(harness: AcpHarness) -> None:
    with pytest.raises(Unavailable, match="no-such-agent"):
        await harness.ask("answer", command=["no-such-agent"])
    with pytest.raises(Failed, match="Method not found"):
        await harness.ask("answer", command=["cat"])
    with pytest.raises(Misused, match="task"):
        harness.agent("answer").check({})


async def test_fifty_megabytes_of_output_do_not_block_the_event_loop(harness: AcpHarness) -> None:
    async with LoopWatch() as loop, harness.remit("floods") as remit:
        result = await remit.delegate("agent", task="Say hello.")
    assert result.status is Status.COMPLETED
    assert loop.held < 5.0


# ---- sessions and the soft deadline


@pytest.mark.parametrize(("mode", "is_continued"), [("resumes", True), ("answer", False)])
async def test_earlier_session_is_continued_if_the_agent_can_load_it(harness: AcpHarness, mode: str, is_continued: bool) -> None:
    harness.backend.saved = {"vendor": "acp", "session": "earlier"}
    await harness.ask(mode)
    assert [one["session"] for one in harness.logged("load")] == ["earlier"] * is_continued
    assert bool(harness.logged("new")) is not is_continued
    (prompt,) = harness.logged("prompt")
    assert prompt["text"].startswith("You were interrupted in this session.") is is_continued
    assert "words of an earlier run" not in str(harness.backend.notes)


async def test_turn_is_cancelled_at_the_soft_deadline_and_the_result_requested_in_the_session(harness: AcpHarness) -> None:
    asking = asyncio.create_task(harness.ask("waits"))
    await harness.wait_prompted()
    harness.backend.tell_hand_in()
    assert json.loads(await asyncio.wait_for(asking, 60))["status"] == "completed"
    assert len(harness.logged("cancel")) == 1
    assert "Time is nearly up" in harness.logged("prompt")[1]["text"]


async def test_cancelled_agent_leaves_no_process(harness: AcpHarness) -> None:
    asking = asyncio.create_task(harness.ask("waits"))
    await harness.wait_prompted()
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    assert harness.left() == []
