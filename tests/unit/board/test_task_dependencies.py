"""Dependencies between tasks: which are unmet."""

from dataclasses import replace

from remit import BoardState as State
from remit import Task
from remit import TaskStatus as Status
from remit.board.view import graph_of


def task(number: int, *dependencies: int, status: Status = Status.NOT_STARTED, parent: int | None = None) -> Task:
    return Task(number=number, title=f"T{number}", slug="t", dependencies=dependencies, status=status, parent=parent)


def test_dependency_is_met_when_it_is_completed_or_archived() -> None:
    state = State(tasks=(task(1, status=Status.COMPLETED), task(2, 1, 90), task(3, 2), task(4, 91), task(5, 99)))
    graph = graph_of(state, {90: Status.COMPLETED, 91: Status.ABANDONED})
    assert [graph.unmet(one) for one in state.tasks] == [(), (), (2,), (91,), (99,)]


def test_dependency_on_a_divided_task_waits_for_its_parts() -> None:
    parts = (task(2, parent=1), task(3, parent=1))
    state = State(tasks=(task(1, status=Status.EXPANDED), *parts, task(4, 1)))
    assert graph_of(state).unmet(task(4, 1)) == (1,)
    done = state
    for part, status in zip(parts, (Status.COMPLETED, Status.ABANDONED), strict=True):
        done = done.with_task(replace(part, status=status))
    assert graph_of(done).unmet(task(4, 1)) == ()
