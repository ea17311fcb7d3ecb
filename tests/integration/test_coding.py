"""Issue 3, items 3 to 5: a coding agent of the command line as a delegate: streamed, counted, repaired in its session, told to hand in.

The programs are scripts that print what the real ones print; `tests/real` runs the real ones.
"""

import asyncio
import json
import sys
import time
import uuid
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from cli_project import remit as remit_at_the_terminal
from process_desk import NotingDesk

from remit import Remit
from remit.agents.coding.agent import CodingAgent
from remit.agents.definition import definition_of
from remit.agents.process import ProcessPool
from remit.core.errors import AgentCrashed, Failed, Unavailable
from remit.core.events import EventKind
from remit.core.result import Status, StopReason
from remit.flow.context import Repair
from remit.system.processes import marked
from support.pace import allowed
from support.witness import LoopWatch

CODER = Path(__file__).with_name("fake_coder.py")
INIT = {"type": "system", "subtype": "init", "session_id": "c-1"}


def message(text: str, tokens: int = 100, key: str = "m1") -> dict[str, Any]:
    content = [{"type": "text", "text": text}]
    return {"type": "assistant", "message": {"id": key, "model": "m", "usage": {"input_tokens": tokens}, "content": content}}


def result(text: str, tokens: int = 120, cost: float = 0.5) -> dict[str, Any]:
    usage = {"m": {"inputTokens": tokens}}
    return {"type": "result", "is_error": False, "result": text, "session_id": "c-1", "total_cost_usd": cost, "modelUsage": usage}


class House:
    def __init__(self, root: Path) -> None:
        self.root = root
        self.owner = uuid.uuid4().hex[:8]
        self.pool = ProcessPool(project="test", owner_id=self.owner)
        self.desk = NotingDesk(root)
        self.desk.scratch.mkdir(exist_ok=True)

    def agent(self, *turns: list[Any], kind: str = "claude", **table: Any) -> CodingAgent:
        (self.root / "turns.json").write_text(json.dumps(turns))
        said = {"kind": kind, "command": [sys.executable, "-I", "-S", str(CODER), str(self.root)], **table}
        return CodingAgent(definition_of("coder", said, source="test"), self.pool)

    async def ask(self, *turns: list[Any], **table: Any) -> str:
        return await self.agent(*turns, **table).perform(self.desk.context(), {"task": "Say hello."})

    def calls(self) -> list[dict[str, Any]]:
        path = self.root / "calls.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def noted(self, kind: str) -> list[Any]:
        return [note[1:] for note in self.desk.notes if note[0] == kind]

    async def wait_said(self, word: str) -> None:
        while word not in str(self.desk.notes):  # noqa: ASYNC110 - it is another process that says it
            await asyncio.sleep(0.02)


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[House]:
    made = House(tmp_path)
    yield made
    await made.pool.close()
    assert not marked(f"test:{made.owner}:"), "nothing is left running"


# ---- its answer, and what is told on the way


async def test_its_final_word_is_the_answer_and_its_prompt_comes_by_standard_input(house: House) -> None:
    answer = await house.ask([INIT, message("Working."), result("Done.")])
    assert answer == "Done."
    (call,) = house.calls()
    assert "Say hello." in call["prompt"]
    assert "How to answer" in call["prompt"]
    assert call["folder"] == str(house.root)
    assert ("Working.",) in house.noted("emit")


async def test_tokens_and_cost_are_spent_once(house: House) -> None:
    await house.ask([INIT, message("a"), message("b"), message("c", tokens=10, key="m2"), result("Done.", tokens=120)])
    assert house.noted("spend") == [(100, 0.0), (10, 0.0), (10, 0.5)]


async def test_the_session_of_the_vendor_is_kept_as_soon_as_it_is_known(house: House) -> None:
    await house.ask([INIT, result("Done.")])
    assert house.noted("checkpoint")[0] == ({"vendor": "claude", "session": "c-1", "tokens": 0},)
    assert house.desk.saved == {"vendor": "claude", "session": "c-1", "tokens": 120}


async def test_a_kept_session_is_gone_on_in(house: House) -> None:
    house.desk.saved = {"vendor": "claude", "session": "c-1", "tokens": 5}
    await house.ask([INIT, result("Done.")])
    (call,) = house.calls()
    assert call["argv"][call["argv"].index("--resume") + 1] == "c-1"
    assert call["prompt"].startswith("You were interrupted in this session.")
    assert "Say hello." in call["prompt"]


async def test_a_session_of_another_vendor_is_none(house: House) -> None:
    house.desk.saved = {"vendor": "codex", "session": "c-1", "tokens": 5}
    await house.ask([INIT, result("Done.")])
    assert "--resume" not in house.calls()[0]["argv"]


async def test_a_session_that_is_gone_is_begun_anew(house: House) -> None:
    house.desk.saved = {"vendor": "claude", "session": "c-0", "tokens": 5}
    gone = {
        "type": "result",
        "is_error": True,
        "subtype": "error_during_execution",
        "errors": ["No conversation found with session ID: c-0"],
    }
    assert await house.ask([gone, {"exit": 1}], [INIT, result("Done.")]) == "Done."
    first, second = house.calls()
    assert "--resume" in first["argv"]
    assert "--resume" not in second["argv"]
    assert second["prompt"].startswith("## Task")


async def test_a_faulty_answer_is_repaired_in_the_same_session(house: House) -> None:
    """Item 5: only the faults are said again, not the task."""
    agent = house.agent([INIT, result("Done.")])
    await agent.perform(house.desk.context(), {"task": "Say hello."})
    house.desk.repair = Repair(faults=("Return is not valid JSON",), original="Done.")
    await agent.perform(house.desk.context(), {"task": "Say hello."})
    _, second = house.calls()
    assert second["argv"][second["argv"].index("--resume") + 1] == "c-1"
    assert "Return is not valid JSON" in second["prompt"]
    assert "Say hello." not in second["prompt"]


async def test_codex_counts_its_session_and_is_charged_for_the_new_part_of_it(house: House) -> None:
    def turn(tokens: int) -> list[Any]:
        said = {"type": "item.completed", "item": {"type": "agent_message", "text": "Done."}}
        usage = {"input_tokens": tokens, "cached_input_tokens": 3, "output_tokens": 0}
        return [{"type": "thread.started", "thread_id": "x-1"}, said, {"type": "turn.completed", "usage": usage}]

    agent = house.agent(turn(600), turn(750), kind="codex")
    assert await agent.perform(house.desk.context(), {"task": "Say hello."}) == "Done."
    house.desk.repair = Repair(faults=("It is bad",), original="Done.")
    await agent.perform(house.desk.context(), {"task": "Say hello."})
    assert house.noted("spend") == [(600, 0.0), (150, 0.0)]
    assert house.calls()[1]["argv"][-3:] == ["resume", "x-1", "-"]


async def test_opencode_answers_with_what_it_said_after_its_last_tool(house: House) -> None:
    def line(kind: str, **part: Any) -> dict[str, Any]:
        return {"type": kind, "sessionID": "ses_1", "part": part}

    tool = line("tool_use", tool="bash", callID="c", state={"status": "completed", "input": {"command": "ls"}})
    answer = await house.ask([line("text", text="I look."), tool, line("text", text="Done.")], kind="opencode")
    assert answer == "Done."
    assert house.desk.saved["session"] == "ses_1"
    assert ("bash: ls", None) in house.noted("progress")


async def test_what_is_no_stream_is_read_as_its_answer(house: House) -> None:
    assert (await house.ask(["plain words", '{"not": "a stream"}'])).splitlines() == ["plain words", '{"not": "a stream"}']


async def test_a_return_said_before_the_last_words_is_found(house: House) -> None:
    answer = await house.ask([INIT, message("$RETURN"), result("I am done now.")])
    assert '"status": "completed"' in answer


async def test_a_tool_is_told_once_by_what_it_was_given_and_the_return_is_not_told_at_all(house: House) -> None:
    call = {"type": "tool_use", "id": "t1", "name": "Bash", "input": {"command": "make"}}
    use = {"type": "assistant", "message": {"id": "m1", "content": [call]}}
    over = {"type": "user", "message": {"content": [{"type": "tool_result", "tool_use_id": "t1", "content": "no output"}]}}
    await house.ask([INIT, use, over, message("That was it.\n\n$RETURN"), result("That was it.\n\n$RETURN")])
    assert [line for line, _ in house.noted("progress") if "Bash" in line] == ["Bash: make"]
    tool = {"tool": {"id": "t1", "kind": "Bash", "title": "make", "status": "completed"}}
    assert [chunk if isinstance(chunk, dict) else chunk.strip() for (chunk,) in house.noted("emit")] == [tool, "That was it."]


async def test_a_return_that_it_had_said_when_it_was_stopped_is_handed_back(house: House) -> None:
    """S2.6: held back from the stream it must not be lost."""
    agent = house.agent([INIT, message("$RETURN"), {"sleep": 60}])
    performing = asyncio.create_task(agent.perform(house.desk.context(), {"task": "Say hello."}))
    await house.wait_said("spend")
    await asyncio.sleep(0.2)
    performing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await performing
    assert '"status": "completed"' in str(house.noted("emit"))


async def test_what_it_last_said_of_a_service_that_refuses_it_is_handed_back(house: House) -> None:
    """It tries again and again, silently, until its deadline."""
    retry = 'timestamp=2999-01-01T00:00:00.000Z level=ERROR message="stream error" error.error="AI_APICallError: rate limit exceeded"'
    agent = house.agent([{"err": retry}, {"type": "step_start", "sessionID": "ses_1"}, {"sleep": 60}], kind="opencode")
    performing = asyncio.create_task(agent.perform(house.desk.context(), {"task": "Say hello."}))
    await house.wait_said("ses_1")
    performing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await performing
    assert house.noted("emit") == [({"trouble": {"vendor": "opencode", "message": "AI_APICallError: rate limit exceeded"}},)]


# ---- what reaches it


@pytest.mark.parametrize("kind", ["claude", "codex", "opencode"])
async def test_one_that_is_to_delegate_is_not_started_without_the_tools_to(
    house: House, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "mcp", None)
    with pytest.raises(Unavailable, match=r"delegates = true needs pip install 'remit\[mcp\]'") as caught:
        await house.ask([INIT, result("Done.")], kind=kind, delegates=True)
    assert caught.value.code == "AGENT_UNAVAILABLE"
    assert house.calls() == []


async def test_its_vendors_variables_reach_it_and_nobody_elses(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ANTHROPIC_BASE_URL", "OPENAI_API_KEY", "MY_SECRET", "CLAUDECODE", "CLAUDE_CODE_SESSION_ID"):
        monkeypatch.setenv(name, "here")
    await house.ask([INIT, result("Done.")], environment={"EXTRA": "1"})
    environment = house.calls()[0]["environment"]
    assert environment["ANTHROPIC_BASE_URL"] == "here"
    assert environment["DISABLE_AUTOUPDATER"] == "1"
    assert environment["EXTRA"] == "1"
    assert not {"OPENAI_API_KEY", "MY_SECRET", "CLAUDECODE", "CLAUDE_CODE_SESSION_ID"} & set(environment)


async def test_a_prompt_of_any_length_reaches_it(house: House) -> None:
    await house.agent([INIT, result("Done.")]).perform(house.desk.context(), {"task": "x" * 1_000_000})
    assert "x" * 1_000_000 in house.calls()[0]["prompt"]


# ---- the soft deadline


async def test_at_the_soft_deadline_its_turn_is_interrupted_and_its_session_asked_to_hand_in(house: House) -> None:
    """S2.4, item 4."""
    agent = house.agent([INIT, message("Working."), {"sleep": 60}], [INIT, result("Handed in.")])
    performing = asyncio.create_task(agent.perform(house.desk.context(), {"task": "Say hello."}))
    await house.wait_said("Working.")
    house.desk.tell_hand_in()
    assert await asyncio.wait_for(performing, 20) == "Handed in."
    _, second = house.calls()
    assert second["argv"][second["argv"].index("--resume") + 1] == "c-1"
    assert "Hand in what there is" in second["prompt"]


async def test_with_too_little_time_left_for_a_question_it_is_left_to_work(house: House) -> None:
    house.desk = NotingDesk(house.root, timeout=4.0)
    agent = house.agent([INIT, message("Working."), {"sleep": 1}, result("Done.")])
    performing = asyncio.create_task(agent.perform(house.desk.context(), {"task": "Say hello."}))
    await house.wait_said("Working.")
    house.desk.tell_hand_in()
    assert await asyncio.wait_for(performing, 20) == "Done."
    assert len(house.calls()) == 1


async def test_a_stop_that_is_no_soft_deadline_interrupts_nothing(house: House) -> None:
    """The wait for the soft deadline ends with a stop, too."""
    agent = house.agent([INIT, message("Working."), {"sleep": 1}, result("Done.")])
    performing = asyncio.create_task(agent.perform(house.desk.context(), {"task": "Say hello."}))
    await house.wait_said("Working.")
    house.desk.soft.set()
    assert await asyncio.wait_for(performing, 20) == "Done."
    assert "nearly up" not in str(house.desk.notes)


async def test_one_that_ends_when_it_is_cancelled_leaves_nothing(house: House) -> None:
    agent = house.agent([INIT, message("Working."), {"sleep": 60}])
    performing = asyncio.create_task(agent.perform(house.desk.context(), {"task": "Say hello."}))
    await house.wait_said("Working.")
    performing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await performing
    assert not marked(f"test:{house.owner}:{house.desk.delegation.session_id}")


# ---- errors


async def test_a_vendors_error_is_raised_in_our_words(house: House) -> None:
    wrong = {"type": "result", "is_error": True, "api_error_status": 429, "result": "API Error: Request rejected (429)"}
    with pytest.raises(Unavailable, match="limit"):
        await house.ask([INIT, wrong, {"exit": 1}])


async def test_a_wrong_key_is_not_tried_for_minutes(house: House) -> None:
    retry = {"type": "system", "subtype": "api_retry", "attempt": 2, "error_status": 401, "error": "authentication_failed"}
    with pytest.raises(Unavailable) as caught:
        await asyncio.wait_for(house.ask([INIT, retry, {"sleep": 60}]), 20)
    assert "/login" in caught.value.advice


async def test_what_comes_again_with_the_same_task_has_failed(house: House) -> None:
    wrong = {"type": "result", "is_error": True, "api_error_status": 400, "result": "Prompt is too long"}
    with pytest.raises(Failed, match="context"):
        await house.ask([INIT, wrong, {"exit": 1}])


async def test_a_program_that_ends_without_an_answer_crashed(house: House) -> None:
    with pytest.raises(AgentCrashed) as caught:
        await house.ask([INIT, {"err": "segmentation fault"}, {"exit": 3}])
    assert caught.value.exit_code == 3
    assert "segmentation fault" in caught.value.stderr_tail


async def test_a_program_that_is_not_there_is_named_with_how_to_install_it(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(house.root))
    agent = CodingAgent(definition_of("coder", {"kind": "codex"}, source="test"), house.pool)
    with pytest.raises(Unavailable) as caught:
        await agent.perform(house.desk.context(), {"task": "Say hello."})
    assert caught.value.code == "AGENT_UNAVAILABLE"
    assert "npm install -g @openai/codex" in caught.value.advice


# ---- in a project


def project(root: Path, *turns: list[Any]) -> None:
    (root / "turns.json").write_text(json.dumps(turns))
    command = json.dumps([sys.executable, "-I", "-S", str(CODER), str(root)])
    (root / "remit.toml").write_text(f'[agents.claude]\nkind = "claude"\ncommand = {command}\n')


async def test_prose_is_repaired_and_the_return_checked(tmp_path: Path) -> None:
    """S3.7, item 5."""
    project(tmp_path, [INIT, result("Trust me.")], [INIT, result("$RETURN", tokens=7)])
    async with Remit.open(tmp_path) as remit:
        handle = await remit.start("claude", task="Say hello.")
        done = await handle.result()
        spent = [event.body async for event in handle.stream() if event.kind is EventKind.SPENT]
    assert done.status is Status.COMPLETED
    assert "The first return was not valid; this is the repaired one." in done.warnings
    assert spent[-1] == {"tokens": 127, "cost": 1.0}


async def test_a_return_that_it_left_in_its_return_file_is_found(tmp_path: Path) -> None:
    """S3.7: the last rung of the ladder, for it too; it is told the file by its environment."""
    project(tmp_path, [INIT, {"file": "$RETURN"}, result("I wrote it all down.")])
    async with Remit.open(tmp_path) as remit:
        done = await remit.delegate("claude", task="Say hello.")
    assert done.status is Status.COMPLETED, done
    assert len((tmp_path / "calls.jsonl").read_text().splitlines()) == 1


async def test_a_budget_that_is_spent_stops_it(tmp_path: Path) -> None:
    """S8: tokens of a vendor are drawn from the tree's budget as they become known."""
    project(tmp_path, [INIT, message("Working.", tokens=1000), {"sleep": 60}])
    async with Remit.open(tmp_path) as remit:
        done = await asyncio.wait_for(remit.delegate("claude", task="Say hello.", budget={"tokens": 500}), 30)
    assert done.stop_reason is StopReason.BUDGET
    assert done.status is Status.PARTIAL


async def test_a_stopped_one_goes_on_in_its_session(tmp_path: Path) -> None:
    """S2.6: its handle is kept, and `resume` leads back to it."""
    project(tmp_path, [INIT, message("Working."), {"sleep": 60}], [INIT, result("$RETURN")])
    async with Remit.open(tmp_path) as remit:
        stopped = await remit.delegate("claude", task="Say hello.", timeout=2)
        assert (stopped.status, stopped.errors[0].code) == (Status.PARTIAL, "TIMEOUT")
        done = await remit.delegate("claude", task="Say hello.", resume=stopped.session_id)
    assert done.status is Status.COMPLETED
    again = json.loads((tmp_path / "calls.jsonl").read_text().splitlines()[1])["argv"]
    assert again[again.index("--resume") + 1] == "c-1"


@pytest.mark.parametrize(
    ("turn", "asked", "reason"),
    [
        ([INIT, result("$RETURN")], {}, StopReason.FINISHED),
        ([INIT, {"exit": 3}], {}, StopReason.CRASHED),
        ([INIT, result("prose")], {}, StopReason.INVALID_RETURN),
        ([INIT, {"sleep": 60}], {"timeout": 1}, StopReason.DEADLINE),
        ([INIT, message("Working.", tokens=1000), {"sleep": 60}], {"budget": {"tokens": 500}}, StopReason.BUDGET),
    ],
    ids=["finished", "crashed", "prose", "deadline", "budget"],
)
async def test_the_handle_of_its_session_is_in_its_return(
    tmp_path: Path, turn: list[Any], asked: dict[str, Any], reason: StopReason
) -> None:
    """Item 3: however it ended, it can be gone on in by hand."""
    project(tmp_path, turn)
    async with Remit.open(tmp_path) as remit:
        done = await remit.delegate("claude", task="Say hello.", **asked)
    assert done.stop_reason is reason, done
    assert done.to_dict()["agent_session"] == {"vendor": "claude", "session": "c-1"}
    assert "c-1 of claude" in remit_at_the_terminal(tmp_path, "show", done.session_id).stdout


async def test_the_handle_is_in_the_return_of_one_that_was_cancelled(tmp_path: Path) -> None:
    project(tmp_path, [INIT, message("Working."), {"sleep": 60}])
    async with Remit.open(tmp_path) as remit:
        handle = await remit.start("claude", task="Say hello.")
        async for event in handle.stream():
            if event.kind is EventKind.DATA:
                break
        await handle.cancel("enough")
        done = await handle.result()
    assert done.extra["agent_session"] == {"vendor": "claude", "session": "c-1"}


@pytest.mark.parametrize("name", ["--dangerously-skip-permissions", "../../x", "a b", "a\nb", "\x1b[2J", "", 7, "x" * 500])
async def test_a_session_by_an_odd_name_is_none(tmp_path: Path, name: Any) -> None:
    """It would be handed back to the program as an argument."""
    project(tmp_path, [{**INIT, "session_id": name}, {**result("prose"), "session_id": name}], [result("$RETURN")])
    async with Remit.open(tmp_path) as remit:
        done = await remit.delegate("claude", task="Say hello.")
    assert done.status is Status.COMPLETED, done
    again = json.loads((tmp_path / "calls.jsonl").read_text().splitlines()[1])["argv"]
    assert "--resume" not in again


@pytest.mark.parametrize(("answers", "last"), [("return", {"sleep": 0}), ("value", {"sleep": 0}), ("return", {"close": 1})])
async def test_one_that_says_it_is_done_and_stays_all_the_same_has_answered(tmp_path: Path, answers: str, last: dict[str, int]) -> None:
    """S2.6: its answer must not be lost with it."""
    project(tmp_path, [INIT, result("$RETURN"), last, {"sleep": 60}])
    with (tmp_path / "remit.toml").open("a") as toml:
        toml.write(f'answers = "{answers}"\n')
    async with Remit.open(tmp_path) as remit:
        done = await remit.delegate("claude", task="Say hello.", timeout=4)
    assert (done.status, done.stop_reason) == (Status.COMPLETED, StopReason.FINISHED), done


async def test_a_final_word_that_comes_with_the_end_of_its_budget_is_handed_back(tmp_path: Path) -> None:
    project(tmp_path, [INIT, message("Working."), result("All of it: 42.", tokens=10_000)])
    async with Remit.open(tmp_path) as remit:
        done = await remit.delegate("claude", task="Say hello.", budget={"tokens": 500})
    assert done.stop_reason is StopReason.BUDGET
    assert "All of it: 42." in done.data["chunks"]


async def test_a_return_file_counts_whatever_its_exit_code(tmp_path: Path) -> None:
    """S3.7."""
    project(tmp_path, [INIT, {"file": "$RETURN"}, {"exit": 1}])
    async with Remit.open(tmp_path) as remit:
        done = await remit.delegate("claude", task="Say hello.")
    assert done.status is Status.COMPLETED, done


async def test_a_flood_of_lines_holds_neither_the_loop_nor_the_deadline(tmp_path: Path) -> None:
    """S2.5."""
    flood = "while True: print('noise ' * 20)"
    (tmp_path / "remit.toml").write_text(f'[agents.claude]\nkind = "claude"\ncommand = {json.dumps([sys.executable, "-ISc", flood])}\n')
    async with Remit.open(tmp_path) as remit, LoopWatch() as loop:
        began = time.monotonic()
        done = await remit.delegate("claude", task="Say hello.", timeout=3)
    assert done.stop_reason is StopReason.DEADLINE
    assert time.monotonic() - began < allowed(6)
    assert loop.held < 2
