"""Coding agents of the command line: streaming, token counts, repair in the session, hand-in.

The programs are scripts that print what the real ones print; `tests/real` runs the real ones.
"""

import asyncio
import json
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from model_harness import Models
from recording_backend import ProcessHarness, process_harness_fixture

from remit import AgentCrashed, Failed, Remit, Settings, Status, StopReason, Unavailable
from remit.agents.coding.coding_agent import STARTED_AGAIN, CodingAgent
from remit.agents.definition import definition_of
from support.pace import allowed
from support.witness import LoopWatch

CODER = Path(__file__).with_name("fake_coder.py")
INIT = {"type": "system", "subtype": "init", "session_id": "c-1"}
MODELS = Models(Settings())


def message(text: str, tokens: int = 100, key: str = "m1") -> dict[str, Any]:
    content = [{"type": "text", "text": text}]
    return {"type": "assistant", "message": {"id": key, "model": "m", "usage": {"input_tokens": tokens}, "content": content}}


def result(text: str, tokens: int = 120, cost: float = 0.5) -> dict[str, Any]:
    usage = {"m": {"inputTokens": tokens}}
    return {"type": "result", "is_error": False, "result": text, "session_id": "c-1", "total_cost_usd": cost, "modelUsage": usage}


def failure(text: str, status: int) -> list[Any]:
    return [INIT, {"type": "result", "is_error": True, "api_error_status": status, "result": text}, {"exit": 1}]


class CodingHarness(ProcessHarness):
    def agent(self, *turns: list[Any], kind: str = "claude", **table: Any) -> CodingAgent:
        (self.root / "turns.json").write_text(json.dumps(turns))
        output = {"kind": kind, "command": [sys.executable, "-I", "-S", str(CODER), str(self.root)], **table}
        return CodingAgent(
            definition_of("coder", output, source="test"), SimpleNamespace(processes=self.pool, models=MODELS, root=self.root)
        )

    async def ask(self, *turns: list[Any], task: str = "Say hello.", **table: Any) -> str:
        return await self.agent(*turns, **table).perform(self.backend.context(), {"task": task})

    def calls(self) -> list[dict[str, Any]]:
        path = self.root / "calls.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


harness = process_harness_fixture(CodingHarness)


def resumed(call: dict[str, Any]) -> str | None:
    return call["argv"][call["argv"].index("--resume") + 1] if "--resume" in call["argv"] else None


# ---- answers and events


async def test_final_message_is_the_answer_and_tokens_are_counted_once(harness: CodingHarness) -> None:
    second = message("c", tokens=10, key="m2")
    assert await harness.ask([INIT, message("Working."), message("b"), second, result("Done.", tokens=120)]) == "Done."
    (call,) = harness.calls()
    assert "Say hello." in call["prompt"]
    assert "How to answer" in call["prompt"]
    assert call["folder"] == str(harness.root)
    assert "Working." in harness.noted("emit")
    assert harness.spent() == [(100, 0.0), (10, 0.0), (10, 0.5)]
    assert harness.noted("checkpoint")[0] == {"vendor": "claude", "session": "c-1", "tokens": 0}, (
        "the session is saved as soon as it is known"
    )
    assert harness.backend.saved == {"vendor": "claude", "session": "c-1", "tokens": 120}


async def test_session_lost_by_the_vendor_is_restarted(harness: CodingHarness) -> None:
    harness.backend.saved = {"vendor": "claude", "session": "c-0", "tokens": 5}
    lost = ["No conversation found with session ID: c-0"]
    missing = {"type": "result", "is_error": True, "subtype": "error_during_execution", "errors": lost}
    assert await harness.ask([missing, {"exit": 1}], [INIT, result("Done.")]) == "Done."
    first, second = harness.calls()
    assert (resumed(first), resumed(second)) == ("c-0", None)
    assert second["prompt"].startswith("## Task")


# ---- start


@pytest.mark.parametrize("kind", ["claude", "codex", "opencode"])
async def test_delegating_agent_does_not_start_without_its_tools(
    harness: CodingHarness, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "mcp", None)
    with pytest.raises(Unavailable, match=r"delegates = true needs pip install 'remit\[mcp\]'") as caught:
        await harness.ask([INIT, result("Done.")], kind=kind, delegates=True)
    assert caught.value.code == "AGENT_UNAVAILABLE"
    assert harness.calls() == []


async def test_vendor_variables_and_long_prompts_reach_the_agent(harness: CodingHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ANTHROPIC_BASE_URL", "OPENAI_API_KEY", "MY_SECRET", "CLAUDECODE", "CLAUDE_CODE_SESSION_ID"):
        monkeypatch.setenv(name, "here")
    await harness.ask([INIT, result("Done.")], task="x" * 1_000_000, environment={"EXTRA": "1"})
    (call,) = harness.calls()
    environment = call["environment"]
    assert (environment["ANTHROPIC_BASE_URL"], environment["DISABLE_AUTOUPDATER"], environment["EXTRA"]) == ("here", "1", "1")
    assert not {"OPENAI_API_KEY", "MY_SECRET", "CLAUDECODE", "CLAUDE_CODE_SESSION_ID"} & set(environment)
    assert "x" * 1_000_000 in call["prompt"]


# ---- errors


@pytest.mark.parametrize(
    ("turn", "error", "expected"),
    [
        (failure("API Error: Request rejected (429)", 429), Unavailable, "limit"),
        (failure("Prompt is too long", 400), Failed, "too long"),
        (
            [INIT, {"type": "system", "subtype": "api_retry", "attempt": 2, "error_status": 401, "error": "auth"}, {"sleep": 60}],
            Unavailable,
            "/login",
        ),
        ([INIT, {"err": "segmentation fault"}, {"exit": 3}], AgentCrashed, "segmentation fault"),
    ],
    ids=["limit", "too long", "wrong key", "crash"],
)
async def test_vendor_error_is_mapped_at_once(harness: CodingHarness, turn: list[Any], error: type[Exception], expected: str) -> None:
    with pytest.raises(error) as caught:
        await asyncio.wait_for(harness.ask(turn), 60)
    reported = caught.value
    assert expected in f"{reported} {getattr(reported, 'advice', '')} {getattr(reported, 'stderr_tail', '')}"
    assert getattr(reported, "exit_code", 3) == 3


# ---- in a project


def project(root: Path, *turns: list[Any]) -> None:
    (root / "turns.json").write_text(json.dumps(turns))
    command = json.dumps([sys.executable, "-I", "-S", str(CODER), str(root)])
    (root / "remit.toml").write_text(f'[agents.claude]\nkind = "claude"\ncommand = {command}\n')


@pytest.mark.parametrize("last", [result("I wrote it all down."), {"exit": 1}], ids=["prose", "exit code"])
async def test_return_file_counts_whatever_the_output_or_exit_code(tmp_path: Path, last: Any) -> None:
    project(tmp_path, [INIT, {"file": "$RETURN"}, last])
    async with Remit.open(tmp_path) as remit:
        done = await remit.delegate("claude", task="Say hello.")
    assert done.status is Status.COMPLETED, done
    assert len((tmp_path / "calls.jsonl").read_text().splitlines()) == 1


@pytest.mark.parametrize(("answers", "last"), [("return", {"sleep": 0}), ("value", {"sleep": 0}), ("return", {"close": 1})])
async def test_agent_that_answers_but_does_not_exit_has_answered(tmp_path: Path, answers: str, last: dict[str, int]) -> None:
    project(tmp_path, [INIT, result("$RETURN"), last, {"sleep": 60}])
    with (tmp_path / "remit.toml").open("a") as toml:
        toml.write(f'answers = "{answers}"\n')
    async with Remit.open(tmp_path) as remit:
        done = await remit.delegate("claude", task="Say hello.", timeout=allowed(2.5))
    assert (done.status, done.stop_reason) == (Status.COMPLETED, StopReason.FINISHED), done


async def test_flood_of_lines_delays_neither_event_loop_nor_deadline(tmp_path: Path) -> None:
    flood = "while True: print('noise ' * 20)"
    (tmp_path / "remit.toml").write_text(f'[agents.claude]\nkind = "claude"\ncommand = {json.dumps([sys.executable, "-ISc", flood])}\n')
    async with Remit.open(tmp_path) as remit, LoopWatch() as loop:
        started = time.monotonic()
        done = await remit.delegate("claude", task="Say hello.", timeout=1.5)
    assert done.stop_reason is StopReason.DEADLINE
    assert time.monotonic() - started < allowed(6)
    assert loop.held < 2


# ---- starts that fail on a shared database

COLLIDED = [{"err": "Error: Unexpected error\n\nFailed query: CREATE TABLE `workspace`"}, {"exit": 1}]
DONE = [{"type": "text", "sessionID": "o-1", "part": {"text": "Done."}}]


async def test_start_that_fails_on_a_locked_database_is_repeated(harness: CodingHarness) -> None:
    assert await harness.ask(COLLIDED, COLLIDED, DONE, kind="opencode") == "Done."
    assert len(harness.calls()) == 3
    assert str(harness.backend.notes).count(STARTED_AGAIN) == 2
