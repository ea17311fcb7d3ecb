"""The scheduler: order of the queue, limits on concurrency, ageing."""

import itertools
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from remit.core.states import Priority
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


def test_waiting_time_outweighs_priority() -> None:
    queue = Queue(ageing=10.0)
    queue.add(Item("low and old", priority=Priority.LOW), 0.0)
    queue.add(Item("critical and new", priority=Priority.CRITICAL), 31.0)
    assert queue.drained() == ["low and old", "critical and new"]


def test_agent_without_free_slots_does_not_block_others() -> None:
    queue = Queue(total=3)
    queue.scheduler.limit("few", 1)
    busy = Item("busy", "few")
    assert queue.scheduler.acquire(busy)
    queue.add(Item("must wait", "few", Priority.CRITICAL))
    queue.add(Item("may run", "many", Priority.LOW), 1.0)
    assert [item.name for item in queue.started] == ["may run"]
    queue.scheduler.leave(busy)
    assert [item.name for item in queue.started] == ["may run", "must wait"]


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


def test_lent_slot_is_used_by_others_and_taken_back() -> None:
    queue = Queue()
    queue.scheduler.lend(queue.first)
    child = queue.add(Item("child"))
    assert queue.started == [child]
    queue.scheduler.leave(child)
    queue.scheduler.take_back(queue.first)
    queue.add(Item("later"))
    assert queue.started == [child]


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
