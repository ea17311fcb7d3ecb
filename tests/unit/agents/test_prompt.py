"""Prompts for agents that are asked in text."""

import sys
from pathlib import Path
from typing import Any

import pytest

from remit import AgentDefinition, Context, TaskContext
from remit.agents.definition import definition_of
from remit.agents.prompt import first_prompt, hand_in_prompt, repair_prompt
from remit.core.context import Repair
from remit.runtime.return_format import format_instruction

sys.path.insert(0, str(Path(__file__).parents[2] / "integration"))
from recording_backend import RecordingBackend


@pytest.fixture
async def backend(tmp_path: Path) -> RecordingBackend:
    return RecordingBackend(tmp_path)


def make_definition(**table: Any) -> AgentDefinition:
    return definition_of("one", {"command": "x", **table}, source="s")


def instruction(ctx: Context) -> str:
    return format_instruction(ctx.session_id, ctx.path[-1], ctx.depth, ctx.path).strip()


async def test_instructions_come_first_then_the_task_then_the_answer_format(backend: RecordingBackend) -> None:
    prompt = first_prompt(make_definition(instructions="You are careful."), backend.context(), {"task": "Count the sheep."})
    assert prompt.startswith("You are careful.\n\n## Task\n\nCount the sheep.\n")
    assert prompt.rstrip().endswith(instruction(backend.context()))


async def test_prompt_never_begins_as_a_slash_command(backend: RecordingBackend) -> None:
    """`/deploy` would run a command of the project without asking."""
    prompt = first_prompt(make_definition(kind="acp", instructions=" /deploy it"), backend.context(), {"task": "/deploy"})
    assert prompt.startswith("## Instructions\n\n/deploy it\n\n## Task\n\n/deploy\n")
    plain = first_prompt(make_definition(instructions="/deploy it", answers="value"), backend.context(), {"task": "Go."})
    assert plain.startswith("/deploy it"), "a plain program gets its text verbatim"


async def test_prompt_repeats_nothing_and_omits_bookkeeping(backend: RecordingBackend) -> None:
    """Number, title and text occur once; no route, no size of context, no commit message."""
    long = "### Phase 1\n" + "- do\n" * 80
    extra = {"commit_message": "task 7: do", "route": "route=x", "context": {"level": 1}, "plan": "p.md", "sheep": "grey"}
    task = TaskContext(task_number=7, title="A title", description="All of it.", has_plan=True, extra=extra)
    backend.delegation = backend.delegation._replace(task=task)
    ctx = backend.context()
    words = f"Implement task 7: A title\n\nDescription: All of it.\n\n{long}"
    prompt = first_prompt(make_definition(), ctx, {"task": words, "number": 7, "phase_text": long, "plan": "p.md"})
    assert prompt.count("A title") == prompt.count("All of it.") == prompt.count("### Phase 1") == prompt.count("p.md") == 1
    assert "- number: 7" in prompt
    assert "- sheep: grey" in prompt
    for noise in ("commit_message", "route", "- context", "has_plan", "task_number"):
        assert noise not in prompt


async def test_context_files_of_the_project_are_included(backend: RecordingBackend, tmp_path: Path) -> None:
    (tmp_path / ".remit" / "context" / "common").mkdir(parents=True)
    (tmp_path / ".remit" / "context" / "common" / "style.md").write_text("Short sentences.")
    assert "Short sentences." in first_prompt(make_definition(), backend.context(), {"task": "Count."})


async def test_repair_names_each_fault_and_repeats_the_first_prompt_outside_a_session(backend: RecordingBackend) -> None:
    backend.repair = Repair(faults=("summary: it is empty", "status: unknown"), original="my prose")
    asked = repair_prompt(backend.context(), in_session=True)
    assert "summary: it is empty" in asked
    assert "status: unknown" in asked
    assert "my prose" not in asked
    assert asked.rstrip().endswith(instruction(backend.context()))
    again = repair_prompt(backend.context(), in_session=False, first="the first prompt")
    assert again.startswith("the first prompt")
    assert "my prose" in again
    assert again.endswith(asked)


async def test_soft_deadline_prompt_names_the_time_left_and_the_format(backend: RecordingBackend) -> None:
    prompt = hand_in_prompt(backend.context(), 12.3)
    assert "12 seconds are left" in prompt
    assert prompt.rstrip().endswith(instruction(backend.context()))
