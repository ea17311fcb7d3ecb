"""Edits of TODO.md: for any board and any edit, no word is lost and no transition is illegal."""

import re
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from remit import BoardState as State
from remit import Task, TaskArtifact
from remit import TaskPriority as Priority
from remit import TaskStatus as Status
from remit.board.state_file import data_to_state, state_to_data
from remit.board.task import NEED_REASON, slug_of
from remit.board.todo import draw, strip_blank_lines
from remit.board.todo_merge import may_become, merge

AT = "2026-01-02T03:04:05Z"

words = st.one_of(
    st.integers(100, 9999).map("w{}".format),
    st.sampled_from(["alpha", "beta", "gamma", "delta", "épsilon", "zeta", "日本", "**bold**", "`code`", "a_b"]),
)
tricky = st.sampled_from(
    ["---", "--- ", "### 9. Nine", "### Heading", "## Section", "# One", "```", "```python", "~~~", "<!--", "-->", "<!-- one -->",
     "- **Status**: [COMPLETED]", "- item", "| a | b |", "\\---", "\\\\### 3. x", "    indented", "", "**Description**: twice", "> quote",
     "- **Owner**: Ann", "1. one", "\\```", "  ```", "## High Priority", "### 2. Two", "---x"]
)  # fmt: skip
line = st.one_of(st.lists(words, min_size=1, max_size=4).map(" ".join), tricky)
description = st.lists(line, max_size=7).map("\n".join)
own_line = st.sampled_from(
    ["- **Owner**: Ann", "- a note", "<!-- said -->", "Plain words", "- **Sprint**: 12", "```", "---", "### 4. Four"]
)


@st.composite
def boards(draw_from: st.DrawFn) -> State:
    numbers = draw_from(st.lists(st.integers(1, 12), unique=True, max_size=6))
    tasks = [draw_from(task_with(number)) for number in numbers]
    return State(tasks=tuple(tasks), next_number=max([0, *numbers]) + 1)


@st.composite
def task_with(draw_from: st.DrawFn, number: int) -> Task:
    title = " ".join(draw_from(st.lists(words, min_size=1, max_size=3)))
    status = draw_from(st.sampled_from(Status))
    return Task(
        number=number,
        title=f"{title} {number}",
        slug=slug_of(title),
        status=status,
        priority=draw_from(st.sampled_from(Priority)),
        language=draw_from(st.sampled_from([None, "python"])),
        description=draw_from(description),
        effort=draw_from(st.sampled_from(["", "2 hours"])),
        blocking_reason="waits" if status in NEED_REASON else "",
        artifacts=draw_from(st.sampled_from([(), (TaskArtifact(type="research", path="specs/001_a b/reports/research-001.md"),)])),
        lines=tuple(strip_blank_lines(draw_from(st.lists(own_line, max_size=3)))),
    )


OURS = {"New", "TODO", "High", "Medium", "Low", "Priority", "Status", "Description", "Language", "Effort", "Research", "Blocking", "Reason"}
"""Words of the format itself, which may be dropped."""


def words_of(text: str) -> set[str]:
    return {word for word in re.findall(r"\w{2,}", text) if not word.isdigit()} - OURS


@given(boards())
def test_unedited_rendering_changes_nothing(state: State) -> None:
    """The rendering parsed back is the board."""
    merged = merge(state, draw(state), at=AT)
    assert merged.state == state
    assert merged.taken == merged.kept == ()


@given(boards())
def test_each_block_is_parsed_as_rendered(state: State) -> None:
    """Merged into an empty board, every description and line is kept."""
    merged = merge(State(), draw(state), at=AT)
    found = {task.number: task for task in merged.state.tasks}
    assert sorted(found) == sorted(task.number for task in state.tasks)
    for task in state.tasks:
        assert found[task.number].title == task.title
        assert found[task.number].description == "\n".join(strip_blank_lines(task.description.split("\n")))
        assert set(task.lines) <= set(found[task.number].lines)
        assert found[task.number].priority is task.priority


insertions = st.one_of(
    line, st.sampled_from(["### New: wish", "### 40. forty", "### 3. Three again", "- **Priority**: Low", "- **Status**: [BLOCKED]"])
)
edits = st.lists(
    st.tuples(st.sampled_from(["insert", "delete", "swap", "replace"]), st.floats(0, 0.999), st.floats(0, 0.999), insertions), max_size=6
)


def apply_edits(text: str, changes: list[tuple[str, float, float, str]]) -> tuple[str, list[str]]:
    """The text after the edits, and the lines written by the person."""
    lines = text.split("\n")
    written: list[str] = []
    for kind, where, other, words_ in changes:
        if not lines:
            break
        if words_.strip() and not set(words_.strip()) <= set("-~`"):
            words_ = f"{words_} own{len(written)}"
        index, second = int(where * len(lines)), int(other * len(lines))
        if kind == "insert":
            lines.insert(index, words_)
            written.append(words_)
        elif kind == "replace":
            lines[index] = words_
            written.append(words_)
        elif kind == "delete":
            del lines[index : index + 1 + int(other * 8)]
        else:
            lines[index], lines[second] = lines[second], lines[index]
    return "\n".join(lines), [one for one in written if one in lines]


@given(boards(), edits)
@settings(max_examples=50)
def test_any_edit_loses_no_task_and_no_word_and_makes_no_illegal_move(state: State, changes: list) -> None:
    text, written = apply_edits(draw(state), changes)
    merged = merge(state, text, at=AT)
    after = merged.state
    before = {task.number: task for task in state.tasks}
    numbers = [task.number for task in after.tasks]
    assert len(set(numbers)) == len(numbers)
    assert set(before) <= set(numbers)
    assert after.next_number > max(numbers, default=0)
    for task in after.tasks:
        old = before[task.number].status if task.number in before else Status.NOT_STARTED
        assert task.status is old or may_become(old, task.status)
        assert task.status not in NEED_REASON or task.blocking_reason
    redrawn = draw(after)
    again = merge(after, redrawn, at=AT)
    assert again.state == after
    assert again.kept == again.taken == ()
    assert data_to_state(state_to_data(after)) == after
    for one in written:
        assert words_of(one) <= words_of(redrawn), (one, merged.taken, merged.kept)
    lost = words_of(text) - words_of(redrawn)
    assert not lost, (lost, merged.taken, merged.kept)


@given(boards(), edits, st.sampled_from(Status))
def test_edits_are_rebased_onto_a_changed_board(state: State, changes: list, status: Status) -> None:
    """Changes made by a command in the meantime are kept."""
    text, _ = apply_edits(draw(state), changes)
    moved = replace(
        state,
        tasks=(
            *(replace(task, session_id="sess_x", effort="9 days") for task in state.tasks),
            Task(number=50, title="Other", slug="other"),
        ),
        next_number=51,
    )
    merged = merge(state, text, at=AT, onto=moved)
    found = {task.number: task for task in merged.state.tasks}
    assert set(found) >= {50, *(task.number for task in state.tasks)}
    assert all(found[task.number].session_id == "sess_x" for task in state.tasks)
    assert merge(state, draw(state), at=AT, onto=moved).state == moved
