"""Edits of TODO.md by a person: what is merged, and what is kept as words."""

from dataclasses import replace

import pytest

from remit.board.task import Priority, State, Status, Task
from remit.board.todo import draw
from remit.board.todo_merge import MergeResult, merge
from remit.core.errors import Refused

AT = "2026-01-02T03:04:05Z"
FENCED = "New words\n\n```md\n---\n### 9. x\n```\n\n<!--\n## Low Priority\n---\n-->\nlast"


def board(*tasks: Task, **more: object) -> State:
    found = tasks or (
        Task(number=1, title="One", slug="one", priority=Priority.HIGH, description="First words."),
        Task(number=2, title="Two", slug="two", status=Status.PLANNED, description="Second words.", effort="1 hour"),
        Task(number=3, title="Three", slug="three", status=Status.COMPLETED, description="Third words."),
        Task(number=4, title="Four", slug="four", priority=Priority.LOW, description="Fourth words."),
    )
    return State(tasks=found, next_number=10, **more)  # type: ignore[arg-type]


def edit(state: State, *changes: tuple[str, str]) -> MergeResult:
    """Merge after replacing texts in the drawing, each of which must be there; the result is settled: a second merge is silent."""
    text = draw(state)
    for old, new in changes:
        assert text.count(old) == 1, (old, text)
        text = text.replace(old, new)
    return settled(state, text)


def settled(state: State, text: str) -> MergeResult:
    merged = merge(state, text, at=AT)
    again = merge(merged.state, draw(merged.state), at=AT)
    assert (again.state, again.taken, again.kept) == (merged.state, (), ())
    # A drawing as it stands is not even read: with a word more at its end it is, and says nothing but that word.
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
        ("[PLANNED]", "completed", 2, {"status": Status.COMPLETED, "completed": AT}),  # nobody writes IMPLEMENTING first
        ("- **Priority**: Low", "- **Priority**: high", 4, {"priority": Priority.HIGH}),
        ("## Low Priority\n", "", 4, {"priority": Priority.LOW}),  # a heading that is gone moves nothing
        ("### 2. Two", "###  2.  Two, better ", 2, {"title": "Two, better", "slug": "two"}),
        (EFFORT, "- **Effort**: 3 days\n* **Language:** lean", 2, {"effort": "3 days", "language": "lean"}),
        (EFFORT, f"{EFFORT}\n- **Owner**: Ann\n  with Bob\nfree words", 2, {"lines": ("- **Owner**: Ann", "  with Bob", "free words")}),
        ("First words.", "First\n```python\nprint()", 1, {"description": "First\n```python\nprint()"}),  # a fence left open
        ("Second words.", FENCED, 2, {"description": FENCED}),
    ],
    ids=range(9),
)
def test_an_edit_is_taken(old: str, new: str, number: int, expected: dict[str, object]) -> None:
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
        (EFFORT, f"{EFFORT}\n- **Started**: soon", 2, "Started: soon"),
        (EFFORT, f"{EFFORT}\n- **Plan**: see the wiki", 2, "Plan: see the wiki"),
    ],
)
def test_an_edit_that_cannot_be_taken_is_reported_and_kept_in_the_block_once(old: str, new: str, number: int, words: str) -> None:
    state = board()
    merged = edit(state, (old, new))
    assert replace(merged.state.task(number), lines=()) == state.task(number)
    assert len(merged.kept) == 1
    assert f"<!-- remit kept: {words}" in block_of(number, merged.state)


def test_blocked_needs_the_line_that_says_why() -> None:
    without = edit(board(), ("[PLANNED]", "[BLOCKED]"))
    assert without.state.task(2).status is Status.PLANNED
    assert "Blocking Reason" in without.kept[0]
    comment = without.state.task(2).lines[0]
    text = draw(without.state).replace("[PLANNED]", "[BLOCKED]\n- **Blocking Reason**: no key")
    merged = settled(without.state, text)
    assert merged.state.task(2).status is Status.BLOCKED
    assert merged.state.task(2).blocking_reason == "no key"
    assert comment not in draw(merged.state)


@pytest.mark.parametrize("line", ["Low", "Medium"])
def test_a_task_moved_to_another_section_has_its_priority_and_stands_where_it_was_put(line: str) -> None:
    state = board()
    four = block_of(4, state)
    merged = settled(state, draw(state).replace(four, "").replace("### 1. One", four.replace("Low", line) + "\n### 1. One"))
    assert merged.state.task(4).priority is Priority.HIGH
    assert [task.number for task in merged.state.tasks] == [4, 1, 2, 3]
    assert [("section counts" in told) for told in merged.kept] == ([True] if line == "Medium" else [])


def test_a_description_that_looks_like_structure_comes_through() -> None:
    text = "Steps\n---\n### 3. Three\n- **Status**: [BLOCKED]\n## High Priority\n\\---\n```\nnever closed"
    state = board(Task(number=1, title="One", slug="one", description=text), Task(number=2, title="Two", slug="two"))
    merged = edit(state, ("### 2. Two", "### 2. Second"))
    assert merged.state.task(1).description == text
    assert [task.title for task in merged.state.tasks] == ["One", "Second"]


def test_dependencies_are_taken_and_what_is_no_number_is_kept() -> None:
    merged = edit(board(), ("- **Effort**: 1 hour", "- **Effort**: 1 hour\n- **Dependencies**: #1, 3-4, after lunch, 77"))
    assert merged.state.task(2).dependencies == (3, 4, 1, 77)
    assert "after lunch" in draw(merged.state)
    assert any("77" in told and "does not have" in told for told in merged.kept)


def test_dependencies_in_a_circle_are_not_taken() -> None:
    state = board(Task(number=1, title="One", slug="one", dependencies=(2,)), Task(number=2, title="Two", slug="two", effort="1 hour"))
    merged = edit(state, (EFFORT, f"{EFFORT}\n- **Dependencies**: 1"))
    assert merged.state.task(2).dependencies == ()
    assert "depend on itself" in merged.kept[0]


def test_new_tasks_get_their_number_or_the_next_one_and_never_one_that_was_used() -> None:
    new = (
        "### New: Wish\nDo it well.\n\n### 15. Fifteen\n- **Status**: [PLANNED]\n- **Owner**: Ann\n\n**Description**: Mine.\n\n---\n\n"
        "### 7. Used once\nseven\n\n---\n\n### Bare title\n\n---\n\n### 15. Again\nfifteen\n\n---\n\n## Medium Priority\n"
    )
    state = board()
    merged = settled(state, draw(state).replace("## Medium Priority\n", new))
    found = {task.title: task for task in merged.state.tasks if task.number > 4}
    assert {title: task.number for title, task in found.items()} == {
        "Wish": 16, "Fifteen": 15, "Used once": 17, "Bare title": 18, "Again": 19,
    }  # fmt: skip
    assert all(task.priority is Priority.HIGH and task.created == AT for task in found.values())
    assert (found["Fifteen"].status, found["Fifteen"].lines) == (Status.PLANNED, ("- **Owner**: Ann",))
    assert (found["Wish"].description, found["Used once"].description) == ("Do it well.", "seven")
    assert merged.state.next_number == 20


def test_a_task_that_was_taken_out_is_drawn_again_where_it_stood() -> None:
    state = board()
    merged = settled(state, draw(state).replace(block_of(2, state), ""))
    assert merged.state.tasks == state.tasks
    assert "remit task --abandon 2" in merged.kept[0]


@pytest.mark.parametrize(
    "heading", ["### 20. Two", "### 2: Two", "### Task 2 - Two", "### #2. Two", "### 2.Two", "### 2) Two", "### Two", "###   002. Two"]
)
def test_a_heading_written_another_way_is_still_its_task(heading: str) -> None:
    merged = edit(board(), ("### 2. Two", heading))
    assert merged.state.tasks == board().tasks


@pytest.mark.parametrize(
    "lines", [["```x", "<!-- y"] * 5_000, [f"{'`' * (3 + number % 200)}x" for number in range(20_000)]], ids=["alike", "of all lengths"]
)
def test_ten_thousand_fences_that_never_close_are_read(lines: list[str]) -> None:
    state = board()
    text = "\n".join(lines)
    merged = edit(state, ("First words.", text))
    assert merged.state.task(1).description == text


def test_the_order_is_taken_and_text_goes_with_its_task() -> None:
    state = board(texts={"after:2": "Behind two."})
    two, three = block_of(2, state), block_of(3, state)
    text = draw(state).replace(three, "").replace(two, three + "\n" + two)
    merged = settled(state, text)
    assert [task.number for task in merged.state.tasks] == [1, 3, 2, 4]
    assert merged.taken == ("The order of the tasks",)
    assert draw(merged.state).index("### 2.") < draw(merged.state).index("Behind two.") < draw(merged.state).index("### 4.")


def test_text_of_ones_own_is_kept_where_it_stands_and_may_be_taken_away() -> None:
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
    assert "Loose" not in draw(settled(merged.state, text.replace("Loose words.", "")).state)


def test_a_file_cut_short_takes_nothing_away() -> None:
    state = board(texts={"end:low": "## Notes\n\nMine."})
    whole = draw(state)
    for length in range(len(whole)):
        merged = merge(state, whole[:length], at=AT)
        assert merged.state.tasks == state.tasks, length
        assert merged.state.texts == state.texts or length > whole.index("Fourth words."), length


def test_line_ends_marks_and_spaces_of_other_editors_are_no_edits() -> None:
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


def test_a_file_with_the_marks_of_a_merge_is_left_alone() -> None:
    state = board()
    text = draw(state).replace("First words.", "<<<<<<< HEAD\nFirst words.\n=======\nOther words.\n>>>>>>> theirs")
    with pytest.raises(Refused, match="unfinished merge") as raised:
        merge(state, text, at=AT)
    assert raised.value.advice


def test_edits_made_while_a_command_worked_are_put_on_top_of_what_it_did() -> None:
    before = board()
    after = before.with_task(before.task(2).moved(Status.IMPLEMENTING, at=AT)).with_task(Task(number=10, title="Ten", slug="ten"))
    text = draw(before).replace("Second words.", "Better words.").replace("### 4. Four", "### New: Mine\n\n---\n\n### 4. Four")
    merged = merge(before, text, at=AT, onto=after)
    assert (merged.state.task(2).status, merged.state.task(2).description) == (Status.IMPLEMENTING, "Better words.")
    assert {task.number: task.title for task in merged.state.tasks if task.number > 4} == {10: "Ten", 11: "Mine"}


def test_words_for_a_task_that_was_archived_meanwhile_are_kept_at_the_end() -> None:
    before = board()
    merged = merge(before, draw(before).replace("Third words.", "Wait, one more thing."), at=AT, onto=before.without([3]))
    assert merged.state.find(3) is None
    assert "Wait, one more thing." in draw(merged.state)
