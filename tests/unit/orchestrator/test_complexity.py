"""How complex a task is, and what context that loads."""

from pathlib import Path

import pytest

from remit.board.task import State, Task
from remit.orchestrator.lifecycle import complexity_of, context_words, loaded_context


def a_task(number: int = 1, *, dependencies: tuple[int, ...] = (), complexity: str = "", parent: int | None = None) -> Task:
    return Task(number=number, title="Dig", slug="dig", dependencies=dependencies, complexity=complexity, parent=parent)


@pytest.mark.parametrize(
    ("task", "subtasks", "phases", "complexity", "reason"),
    [
        (a_task(), 0, 0, "simple", "one task, no dependencies, no plan of several phases"),
        (a_task(), 0, 1, "simple", "one task, no dependencies, no plan of several phases"),
        (a_task(), 0, 2, "moderate", "2 phases"),
        (a_task(dependencies=(7,)), 0, 0, "moderate", "1 dependency"),
        (a_task(), 1, 0, "moderate", "1 subtask"),
        (a_task(dependencies=(7, 8, 9, 10)), 0, 0, "complex", "4 dependencies"),
        (a_task(), 4, 0, "complex", "4 subtasks"),
        (a_task(), 0, 5, "complex", "5 phases"),
        (a_task(dependencies=(7, 8, 9, 10), complexity="simple"), 0, 9, "simple", "the task says so"),
        (a_task(complexity="hard"), 0, 2, "moderate", "2 phases; the task's own 'hard' is none of simple, moderate, complex"),
    ],
)
def test_complexity_follows_the_stated_rule(task: Task, subtasks: int, phases: int, complexity: str, reason: str) -> None:
    state = State(tasks=(task, *(a_task(20 + one, parent=task.number) for one in range(subtasks))))
    assert complexity_of(task, state, phases) == (complexity, reason)


def test_each_level_loads_more_and_what_is_left_out_is_named(tmp_path: Path) -> None:
    context = tmp_path / ".remit" / "context"
    for name in ("common/style.md", "python/typing.md", "history/old.md"):
        (context / name).parent.mkdir(parents=True)
        (context / name).write_text("Read me.")
    (context / "common" / "huge.md").write_text("x" * 300_000)
    loaded = {
        level: loaded_context(tmp_path, *complexity_of(a_task(complexity=level)), "python") for level in ("simple", "moderate", "complex")
    }
    assert loaded["simple"]["files"] == ["common/style.md"]
    assert loaded["moderate"]["files"] == ["common/style.md", "python/typing.md"]
    assert loaded["complex"]["files"] == ["common/style.md", "python/typing.md", "history/old.md"]
    assert loaded["simple"]["bytes"] == len("--- common/style.md\nRead me.\n")
    words = context_words(loaded["simple"])
    assert words.startswith("level 1 (simple: the task says so): common/style.md (29 bytes).")
    assert "huge.md was left out" in words
