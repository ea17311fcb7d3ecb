"""Dependencies between tasks: unmet, ready, cyclic."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from remit import BoardState as State
from remit import Task
from remit import TaskStatus as Status
from remit.board.view import cycles, graph_of


def task(number: int, *dependencies: int, status: Status = Status.NOT_STARTED, parent: int | None = None) -> Task:
    return Task(number=number, title=f"T{number}", slug="t", dependencies=dependencies, status=status, parent=parent)


def test_task_is_ready_when_its_dependencies_are_completed_or_archived() -> None:
    state = State(tasks=(task(1, status=Status.COMPLETED), task(2, 1, 90), task(3, 2), task(4, 91), task(5, 99)))
    graph = graph_of(state, {90: Status.COMPLETED, 91: Status.ABANDONED})
    assert [one.number for one in state.tasks if graph.is_ready(one)] == [2]
    assert [graph.unmet(one) for one in state.tasks] == [(), (), (2,), (91,), (99,)]


def test_dependency_on_a_divided_task_waits_for_its_parts() -> None:
    parts = (task(2, parent=1), task(3, parent=1))
    state = State(tasks=(task(1, status=Status.EXPANDED), *parts, task(4, 1)))
    assert graph_of(state).unmet(task(4, 1)) == (1,)
    done = state
    for part, status in zip(parts, (Status.COMPLETED, Status.ABANDONED), strict=True):
        done = done.with_task(replace(part, status=status))
    assert graph_of(done).unmet(task(4, 1)) == ()


def test_chain_of_thousands_does_not_overflow_the_stack() -> None:
    chain = [task(number, number + 1) for number in range(1, 5_000)]
    assert cycles(chain) == []
    assert len(cycles([*chain, task(5_000, 1)])[0]) == 5_000


@given(st.dictionaries(st.integers(1, 7), st.sets(st.integers(1, 7)), max_size=7))
def test_task_is_in_a_cycle_exactly_when_it_reaches_itself(after: dict[int, set[int]]) -> None:
    found = cycles([task(number, *sorted(targets)) for number, targets in after.items()])
    for circle in found:
        assert all(later in after[earlier] for earlier, later in zip(circle, (*circle[1:], circle[0]), strict=True))
    reaches = {number: _reached(number, after) for number in after}
    tangled = {number for number in after if number in reaches[number]}
    assert bool(found) == bool(tangled)
    assert {number for circle in found for number in circle} <= tangled
    # Every task on a cycle is connected to a reported one.
    assert all(any(set(circle) & (reaches[number] | {number}) for circle in found) for number in tangled)


def _reached(start: int, after: dict[int, set[int]]) -> set[int]:
    seen: set[int] = set()
    queue = list(after.get(start, ()))
    for node in queue:
        if node not in seen:
            seen.add(node)
            queue += after.get(node, ())
    return seen & after.keys()
