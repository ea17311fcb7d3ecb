"""Rendering of TODO.md."""

from remit import BoardState as State
from remit import Task, TaskArtifact
from remit import TaskPriority as Priority
from remit import TaskStatus as Status
from remit.board.todo import block, draw, text_of

FULL = Task(
    number=12,
    title="Fix the parser",
    slug="fix_the_parser",
    status=Status.BLOCKED,
    priority=Priority.HIGH,
    language="python",
    description="It drops the last line.\n\n- see `parser.py`",
    effort="2 hours",
    dependencies=(3, 7),
    started="2026-01-02T10:00:00Z",
    completed="2026-01-03T10:00:00Z",
    blocking_reason="waits for 3",
    artifacts=(
        TaskArtifact(type="research", path="specs/012_fix_the_parser/reports/research-001.md"),
        TaskArtifact(type="implementation", path="src/parser one.py"),
    ),
    plan_path="specs/012_fix_the_parser/plans/implementation-001.md",
    lines=("- **Owner**: Ann",),
)


def test_task_is_rendered_with_all_fields_in_order() -> None:
    assert block(FULL) == (
        "### 12. Fix the parser\n"
        "- **Status**: [BLOCKED]\n"
        "- **Effort**: 2 hours\n"
        "- **Priority**: High\n"
        "- **Language**: python\n"
        "- **Dependencies**: 3, 7\n"
        "- **Started**: 2026-01-02\n"
        "- **Completed**: 2026-01-03\n"
        "- **Blocking Reason**: waits for 3\n"
        "- **Research**: [research-001.md](012_fix_the_parser/reports/research-001.md)\n"
        "- **Plan**: [implementation-001.md](012_fix_the_parser/plans/implementation-001.md)\n"
        "- **Implementation**: [parser one.py](../src/parser%20one.py)\n"
        "- **Owner**: Ann\n"
        "\n"
        "**Description**: It drops the last line.\n\n- see `parser.py`\n"
        "\n"
        "---"
    )


def test_sections_and_tasks_are_rendered_in_board_order() -> None:
    one, two, three = (Task(number=number, title=f"T{number}", slug="t") for number in (1, 2, 3))
    state = State(
        tasks=(three, FULL, one, two), texts={"top": "# Ours\n\nRead this.", "after:3": "Between.", "end:low": "## Notes\n\nMine."}
    )
    lines = [line for line in draw(state).split("\n") if line.startswith(("#", "Read", "Between", "Mine"))]
    assert lines == [
        "# Ours", "Read this.", "## High Priority", "### 12. Fix the parser", "## Medium Priority", "### 3. T3", "Between.", "### 1. T1",
        "### 2. T2", "## Low Priority", "## Notes", "Mine.",
    ]  # fmt: skip


def test_todo_is_decoded_from_any_encoding() -> None:
    assert text_of("# café".encode()) == "# café"
    assert text_of("# café\n".encode("latin-1") + "日本".encode()) == "# café\n日本"
    assert text_of("# TODO".encode("utf-16")) == "# TODO"
