"""Any board round-trips through state.json; any bytes are parsed or reported."""

import json
from dataclasses import fields
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from remit import BoardState as State
from remit import Task, TaskArtifact, Unavailable
from remit import TaskPriority as Priority
from remit import TaskStatus as Status
from remit.board.state_file import read_state, state_to_bytes, task_to_entry
from remit.board.task import PlanVersion

words = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
named = words.filter(bool)
folders = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="/\\\0\n"), min_size=1, max_size=20)
numbers = st.integers(1, 10**12)
plain = st.none() | st.booleans() | st.integers(-(2**60), 2**60) | words
json_values = st.recursive(
    plain, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=3), max_leaves=5
)  # fmt: skip
more = st.dictionaries(words.map(lambda word: f"x_{word}"), json_values, max_size=2)
artifacts = st.builds(TaskArtifact, type=named, path=words, summary=words, extra=more)
versions = st.builds(PlanVersion, version=numbers, path=words, created=words, reason=words, extra=more)


texts = {one.name: words for one in fields(Task) if one.type is str and one.name not in ("title", "slug", "type")}


def tasks(number: st.SearchStrategy[int] = numbers) -> st.SearchStrategy[Task]:
    return st.builds(
        Task,
        number=number,
        title=named,
        slug=folders,
        type=named,
        status=st.sampled_from(Status),
        priority=st.sampled_from(Priority),
        language=st.none() | named,
        dependencies=st.lists(numbers, max_size=3).map(tuple),
        artifacts=st.lists(artifacts, max_size=2).map(tuple),
        plan_versions=st.lists(versions, max_size=2).map(tuple),
        accept=st.lists(words, max_size=2).map(tuple),
        parent=st.none() | numbers,
        lines=st.lists(words, max_size=2).map(tuple),
        extra=more,
        **texts,
    )


@given(st.lists(tasks(), max_size=4, unique_by=lambda task: task.number), more, st.dictionaries(words, words, max_size=2))
def test_board_round_trips(several: list[Task], extra: dict[str, Any], texts: dict[str, str]) -> None:
    state = State(extra=extra, texts=texts).with_tasks(several)
    assert read_state(state_to_bytes(state, "drawn"), "state.json").state == state
    assert all(state.find(task.number) == task for task in several)
    assert state.find(10**13) is None


@given(st.binary(max_size=60) | json_values.map(lambda value: json.dumps(value).encode()))
def test_any_bytes_are_parsed_or_reported(data: bytes) -> None:
    try:
        read_state(data, "specs/state.json")
    except Unavailable as error:
        assert error.message.startswith("specs/state.json")  # noqa: PT017 - some are valid


@given(
    st.dictionaries(
        st.sampled_from([*task_to_entry(Task(number=1, title="a", slug="a")), "plan_versions", "accept", "parent"]), json_values
    )
)
def test_any_entry_is_parsed_or_reported(entry: dict[str, Any]) -> None:
    entry = {"project_number": 1, "title": "A", "project_name": "a", "status": "planned"} | entry
    data = json.dumps({"active_projects": [entry]}).encode()
    try:
        state = read_state(data, "specs/state.json").state
    except Unavailable as error:
        assert "Nothing was changed" in error.advice  # noqa: PT017 - some are valid
    else:
        assert read_state(state_to_bytes(state), "specs/state.json").state == state
