"""Edits of TODO.md by a person: merged into fields, or kept as text."""

from dataclasses import replace

import pytest

from remit import BoardState as State
from remit import Refused, Task
from remit import TaskPriority as Priority
from remit import TaskStatus as Status
from remit.board.todo import draw
from remit.board.todo_merge import MergeResult, merge

AT = "2026-01-02T03:04:05Z"


def board(*tasks: Task, **more: object) -> State:
    found = tasks or (
        Task(number=1, title="One", slug="one", priority=Priority.HIGH, description="First words."),
        Task(number=2, title="Two", slug="two", status=Status.PLANNED, description="Second words.", effort="1 hour"),
        Task(number=3, title="Three", slug="three", status=Status.COMPLETED, description="Third words."),
        Task(number=4, title="Four", slug="four", priority=Priority.LOW, description="Fourth words."),
    )
    return State(tasks=found, next_number=10, **more)  # type: ignore[arg-type]


def edit(state: State, *changes: tuple[str, str]) -> MergeResult:
    """Merge after replacing texts in the rendering, each of which occurs once. A second merge of the result changes nothing."""
    text = draw(state)
    for old, new in changes:
        assert text.count(old) == 1, (old, text)
        text = text.replace(old, new)
    return merge_until_stable(state, text)


def merge_until_stable(state: State, text: str) -> MergeResult:
    merged = merge(state, text, at=AT)
    again = merge(merged.state, draw(merged.state), at=AT)
    assert (again.state, again.taken, again.kept) == (merged.state, (), ())
    # An unchanged rendering is not parsed: add a line to have it parsed, and expect only that line as an edit.
    more = merge(merged.state, draw(merged.state) + "\nA word more.\n", at=AT)
    assert (more.taken, more.kept) == (("Your own text between the tasks",), ())
    assert draw(more.state).replace("\n\nA word more.", "") == draw(merged.state)
    return merged


def block_of(number: int, state: State) -> str:
    text = draw(state)
    begin = text.index(f"### {number}. ")
    return text[begin : text.index("\n---\n", begin) + 5]


EFFORT = "- **Effort**: 1 hour"


@pytest.mark.parametrize(
    ("old", "new", "number", "expected"),
    [
        ("[PLANNED]", "[IMPLEMENTING]", 2, {"status": Status.IMPLEMENTING, "started": AT}),
        ("[PLANNED]", "completed", 2, {"status": Status.COMPLETED, "completed": AT}),  # people skip IMPLEMENTING
        ("- **Priority**: Low", "- **Priority**: high", 4, {"priority": Priority.HIGH}),
        ("## Low Priority\n", "", 4, {"priority": Priority.LOW}),  # removing a heading changes no priority
        ("### 2. Two", "###  2.  Two, better ", 2, {"title": "Two, better", "slug": "two"}),
        (EFFORT, "- **Effort**: 3 days\n* **Language:** lean", 2, {"effort": "3 days", "language": "lean"}),
        (EFFORT, f"{EFFORT}\n- **Started**: 2026-01-31\n{EFFORT} more", 2, {"started": "2026-01-31", "lines": (f"{EFFORT} more",)}),
        (EFFORT, f"{EFFORT}\n- **Owner**: Ann\n  with Bob\nfree words", 2, {"lines": ("- **Owner**: Ann", "  with Bob", "free words")}),
        ("First words.", "First\n```python\nprint()", 1, {"description": "First\n```python\nprint()"}),  # an unclosed fence
    ],
    ids=range(9),
)
def test_edit_is_merged_into_the_task(old: str, new: str, number: int, expected: dict[str, object]) -> None:
    merged = edit(board(), (old, new))
    assert {name: getattr(merged.state.task(number), name) for name in expected} == expected
    assert [task.number for task in merged.state.tasks] == [1, 2, 3, 4]
    assert merged.kept == ()
    assert not merged.taken or merged.taken[0].startswith(f"Task {number}: ")


@pytest.mark.parametrize(
    ("old", "new", "number", "words"),
    [
        ("[COMPLETED]", "[PLANNED]", 3, "Status: [PLANNED]"),
        ("[PLANNED]", "[NOT STARTED]", 2, "Status: [NOT STARTED]"),
        ("[PLANNED]", "[DONE-ish]", 2, "Status: [DONE-ish]"),
        ("- **Priority**: Low", "- **Priority**: Urgent", 4, "Priority: Urgent"),
        (EFFORT, f"{EFFORT}\n- **Plan**: see the wiki", 2, "Plan: see the wiki"),
    ],
)
def test_invalid_edit_is_reported_and_kept_once_as_a_comment(old: str, new: str, number: int, words: str) -> None:
    state = board()
    merged = edit(state, (old, new))
    assert replace(merged.state.task(number), lines=()) == state.task(number)
    assert len(merged.kept) == 1
    assert f"<!-- remit kept: {words}" in block_of(number, merged.state)


def test_blocked_requires_a_blocking_reason() -> None:
    without = edit(board(), ("[PLANNED]", "[BLOCKED]"))
    assert without.state.task(2).status is Status.PLANNED
    assert "Blocking Reason" in without.kept[0]
    comment = without.state.task(2).lines[0]
    text = draw(without.state).replace("[PLANNED]", "[BLOCKED]\n- **Blocking Reason**: no key")
    merged = merge_until_stable(without.state, text)
    assert merged.state.task(2).status is Status.BLOCKED
    assert merged.state.task(2).blocking_reason == "no key"
    assert comment not in draw(merged.state)


@pytest.mark.parametrize("line", ["Low", "Medium"])
def test_moving_a_task_to_another_section_sets_priority_and_position(line: str) -> None:
    state = board()
    four = block_of(4, state)
    merged = merge_until_stable(state, draw(state).replace(four, "").replace("### 1. One", four.replace("Low", line) + "\n### 1. One"))
    assert merged.state.task(4).priority is Priority.HIGH
    assert [task.number for task in merged.state.tasks] == [4, 1, 2, 3]
    assert [("section counts" in note) for note in merged.kept] == ([True] if line == "Medium" else [])


def test_dependencies_are_merged_and_invalid_ones_are_kept_as_text() -> None:
    merged = edit(board(), ("- **Effort**: 1 hour", "- **Effort**: 1 hour\n- **Dependencies**: #1, 3 and 4, after lunch"))
    assert merged.state.task(2).dependencies == (1, 3, 4)
    assert "after lunch" in draw(merged.state)


def test_cyclic_dependencies_are_not_merged() -> None:
    state = board(Task(number=1, title="One", slug="one", dependencies=(2,)), Task(number=2, title="Two", slug="two", effort="1 hour"))
    merged = edit(state, (EFFORT, f"{EFFORT}\n- **Dependencies**: 1"))
    assert merged.state.task(2).dependencies == ()
    assert "depend on itself" in merged.kept[0]


def test_new_tasks_get_free_numbers() -> None:
    new = (
        "### Wish\nDo it well.\n\n### 15. Fifteen\n- **Status**: [PLANNED]\n- **Owner**: Ann\n\n**Description**: Mine.\n\n---\n\n"
        "### 7. Used once\nseven\n\n---\n\n### Bare title\n\n---\n\n### 15. Again\nfifteen\n\n---\n\n## Medium Priority\n"
    )
    state = board()
    merged = merge_until_stable(state, draw(state).replace("## Medium Priority\n", new))
    found = {task.title: task for task in merged.state.tasks if task.number > 4}
    assert {title: task.number for title, task in found.items()} == {
        "Wish": 16, "Fifteen": 15, "Used once": 17, "Bare title": 18, "Again": 19,
    }  # fmt: skip
    assert all(task.priority is Priority.HIGH and task.created == AT for task in found.values())
    assert (found["Fifteen"].status, found["Fifteen"].lines) == (Status.PLANNED, ("- **Owner**: Ann",))
    assert (found["Wish"].description, found["Used once"].description) == ("Do it well.", "seven")
    assert merged.state.next_number == 20


@pytest.mark.parametrize("heading", ["### 20. Two", "### 2.Two", "### 2) Two", "### Two", "###   002. Two"])
def test_task_is_recognized_by_its_heading_in_many_spellings(heading: str) -> None:
    merged = edit(board(), ("### 2. Two", heading))
    assert merged.state.tasks == board().tasks


def test_order_is_merged_and_text_moves_with_its_task() -> None:
    state = board(texts={"after:2": "Behind two."})
    two, three = block_of(2, state), block_of(3, state)
    text = draw(state).replace(three, "").replace(two, three + "\n" + two)
    merged = merge_until_stable(state, text)
    assert [task.number for task in merged.state.tasks] == [1, 3, 2, 4]
    assert merged.taken == ("The order of the tasks",)
    assert draw(merged.state).index("### 2.") < draw(merged.state).index("Behind two.") < draw(merged.state).index("### 4.")


def test_free_text_keeps_its_place_and_can_be_removed() -> None:
    state = board()
    merged = edit(
        state,
        ("# TODO", "# Our work\n\n## How to read this\n\nFrom above."),
        ("## High Priority\n", "## 🔥 High Priority (now!)\n\nUrgent things.\n"),
        ("## Medium Priority", "Loose words.\n\n## Ideas\n\n### 1. not a task\n\n---\nmore\n\n## Medium Priority"),
    )
    text = draw(merged.state)
    places = [
        text.index(word) for word in ("Our work", "From above", "🔥", "Urgent", "### 1. One", "Loose", "## Ideas", "not a task", "more")
    ]
    assert places == sorted(places)
    assert merged.state.tasks == state.tasks
    assert "Loose" not in draw(merge_until_stable(merged.state, text.replace("Loose words.", "")).state)


def test_truncated_file_removes_nothing() -> None:
    state = board(texts={"end:low": "## Notes\n\nMine."})
    whole = draw(state)
    for length in range(len(whole)):
        merged = merge(state, whole[:length], at=AT)
        assert merged.state.tasks == state.tasks, length
        assert merged.state.texts == state.texts or length > whole.index("Fourth words."), length


def test_line_endings_and_whitespace_of_editors_are_not_edits() -> None:
    state = board()
    for text in (
        draw(state).replace("\n", "\r\n"),
        "\ufeff" + draw(state),
        draw(state).rstrip(),
        draw(state).replace("\n", "  \n"),
        draw(state).replace("- **", "-\t**").replace("### ", "###\t"),
    ):
        merged = merge(state, text, at=AT)
        assert (merged.state, merged.taken, merged.kept) == (state, (), ())


def test_file_with_git_conflict_markers_is_refused() -> None:
    state = board()
    text = draw(state).replace("First words.", "<<<<<<< HEAD\nFirst words.\n=======\nOther words.\n>>>>>>> theirs")
    with pytest.raises(Refused, match="unfinished merge") as raised:
        merge(state, text, at=AT)
    assert raised.value.advice


def test_edit_of_an_archived_task_is_kept_at_the_end() -> None:
    before = board()
    merged = merge(before, draw(before).replace("Third words.", "Wait, one more thing."), at=AT, onto=before.without([3]))
    assert merged.state.find(3) is None
    assert "Wait, one more thing." in draw(merged.state)
