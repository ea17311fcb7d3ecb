"""Slots: who runs next, how many at once, and that ageing needs no clock of its own (S5.6)."""

import itertools
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from remit.core.states import Priority
from remit.engines.embedded.slots import Slots


def slots_of(total: int = 1, per_agent: dict[str, int] | None = None, *, queue: int = 100, ageing: float = 10.0) -> Slots:
    slots = Slots(total, queue_limit=queue, ageing_seconds=ageing)
    for agent, limit in (per_agent or {}).items():
        slots.limit(agent, limit)
    return slots


def drained(slots: Slots) -> list[Any]:
    found = []
    while (item := slots.next(lambda _: True)) is not None:
        found.append(item)
    return found


def test_the_more_urgent_first_and_equals_by_age() -> None:
    slots = slots_of()
    for since, (name, priority) in enumerate([("l", 1), ("n1", 2), ("c", 4), ("n2", 2), ("h", 3)]):
        slots.enqueue("a", Priority(priority), since, name)
    assert drained(slots) == ["c", "h", "n1", "n2", "l"]


def test_waiting_outweighs_priority_in_the_end() -> None:
    slots = slots_of(ageing=10.0)
    slots.enqueue("a", Priority.LOW, 0.0, "low and old")
    slots.enqueue("a", Priority.CRITICAL, 31.0, "critical and new")
    assert drained(slots) == ["low and old", "critical and new"]


def test_an_agent_whose_slots_are_taken_holds_nobody_else_up() -> None:
    slots = slots_of(total=3, per_agent={"few": 1})
    slots.take("few")
    slots.enqueue("few", Priority.CRITICAL, 0.0, "must wait")
    slots.enqueue("many", Priority.LOW, 1.0, "may run")
    assert slots.next(lambda _: True) == "may run"
    assert slots.next(lambda _: True) is None
    slots.give("few")
    assert slots.next(lambda _: True) == "must wait"


def test_what_nobody_wants_any_more_is_dropped_and_leaves_its_place() -> None:
    slots = slots_of(queue=2)
    for name in ("gone", "wanted"):
        slots.reserve()
        slots.enqueue("a", Priority.NORMAL, 0.0, name)
    assert slots.is_full
    slots.release()  # by the one that ended in the queue
    assert not slots.is_full
    assert slots.next(lambda item: item == "wanted") == "wanted"


def test_a_place_counts_from_the_moment_it_is_asked_for() -> None:
    slots = slots_of(queue=1)
    slots.reserve()
    assert slots.is_full


@given(st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from(Priority), st.floats(0, 1000)), max_size=30), st.floats(0.1, 100))
def test_the_order_between_two_who_wait_is_the_same_at_every_moment(waiting: list[tuple[str, Priority, float]], ageing: float) -> None:
    """So one fixed key is enough: effective priority is priority plus waiting time over the ageing time."""
    slots = slots_of(ageing=ageing)
    for number, (agent, priority, since) in enumerate(waiting):
        slots.enqueue(agent, priority, since, number)
    now = 1000.0
    effective = [waiting[number][1] + (now - waiting[number][2]) / ageing for number in drained(slots)]
    assert all(first >= second - 1e-6 for first, second in itertools.pairwise(effective))
    assert len(effective) == len(waiting)


def test_what_a_lender_declares_does_not_limit_an_agent_of_our_own() -> None:
    slots = Slots(8, queue_limit=8, ageing_seconds=30.0)
    slots.limit("tool", 1, is_default=True)
    slots.limit("tool", 5, is_default=True)
    slots.take("tool")
    assert not slots.is_free("tool"), "the first lender's word stands among lenders"
    slots.limit("tool", None)
    assert slots.is_free("tool"), "until the owner has one of that name itself"
