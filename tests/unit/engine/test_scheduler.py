"""The scheduler: order of the queue, limits on concurrency, ageing."""

import itertools
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from remit import Priority
from remit.engines.embedded.scheduler import Scheduler


@dataclass(eq=False)
class Item:
    name: Any
    agent: str = "a"
    priority: Priority = Priority.NORMAL

    @property
    def delegation(self) -> Any:
        return SimpleNamespace(agent=self.agent, priority=self.priority)


class Queue:
    """A scheduler whose only slot is taken, and the items it started since."""

    def __init__(self, total: int = 1, *, ageing: float = 10.0, limit: int = 100) -> None:
        self.started: list[Item] = []
        self.scheduler = Scheduler(total, queue_limit=limit, ageing_seconds=ageing, start=self.started.append)
        self.first = Item("first", "other")
        assert self.scheduler.acquire(self.first)

    def add(self, item: Item, since: float = 0.0) -> Item:
        self.scheduler.reserve(item)
        self.scheduler.enqueue(item, since)
        return item

    def drained(self) -> list[Any]:
        self.scheduler.leave(self.first)
        for item in self.started:  # the end of one starts the next
            self.scheduler.leave(item)
        return [item.name for item in self.started]


def test_item_that_left_the_queue_frees_its_place_and_is_not_started() -> None:
    queue = Queue(limit=2)
    cancelled = queue.add(Item("cancelled"))
    queue.add(Item("wanted"))
    assert queue.scheduler.is_full
    queue.scheduler.leave(cancelled)
    assert not queue.scheduler.is_full
    assert queue.drained() == ["wanted"]


def test_place_is_taken_while_the_item_is_being_recorded() -> None:
    queue = Queue(limit=1)
    queue.scheduler.reserve(Item("new"))
    assert queue.scheduler.is_full


@given(st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from(Priority), st.floats(0, 1000)), max_size=30), st.floats(0.1, 100))
def test_queue_order_follows_priority_and_waiting_time(waiting: list[tuple[str, Priority, float]], ageing: float) -> None:
    """The order of two items never changes: effective priority is priority plus waiting time over the ageing time."""
    queue = Queue(ageing=ageing)
    for number, (agent, priority, since) in enumerate(waiting):
        queue.add(Item(number, agent, priority), since)
    now = 1000.0
    effective = [waiting[number][1] + (now - waiting[number][2]) / ageing for number in queue.drained()]
    assert all(first >= second - 1e-6 for first, second in itertools.pairwise(effective))
    assert len(effective) == len(waiting)


def test_default_limit_does_not_replace_another() -> None:
    queue = Queue(total=8)
    queue.scheduler.limit("tool", 1, is_default=True)
    queue.scheduler.limit("tool", 5, is_default=True)
    assert queue.scheduler.acquire(Item(1, "tool"))
    assert not queue.scheduler.acquire(Item(2, "tool"))
    queue.scheduler.limit("tool", None)
    assert queue.scheduler.acquire(Item(2, "tool"))
