"""What every `Store` must do, as checks that the author of one can run over it. Needs no test framework.

    from remit.testing.store_suite import STORE_CHECKS

    @pytest.mark.parametrize("check", STORE_CHECKS, ids=lambda check: check.__name__)
    def test_store(check, tmp_path):
        check(lambda: MyStore(tmp_path / "my.db"))

Each check is given a function that opens the store: every call opens one more handle on the same, at first empty, contents,
the way a second process would. A check closes what it opens and raises `AssertionError` when a promise is broken.
"""

from dataclasses import replace
from typing import Any

from remit.core.budget import Limits
from remit.core.delegation import TaskContext
from remit.core.events import EventKind
from remit.core.record import RecordDelegation, SaveCheckpoint, StartDelegation, WriteResult
from remit.core.states import Priority, State
from remit.testing.store_samples import Check, OpenStore, OwnedStore, begun, numbers_of, opened, outcome, record, said, session
from remit.testing.store_search_suite import SEARCH_CHECKS

__all__ = ["STORE_CHECKS", "Check", "OpenStore", "OwnedStore"]

STORE_CHECKS: list[Check] = [*SEARCH_CHECKS]


def _promise(check: Check) -> Check:
    STORE_CHECKS.append(check)
    return check


# ---- recording and settling


@_promise
def what_was_recorded_is_found_whole(open_store: OpenStore) -> None:
    full = record(
        1,
        key="digest-readme",
        command="research",
        task=TaskContext(task_number=195, title="Bibliothek öffnen", language="lean", has_plan=True, extra={"effort": "2 h"}),
        accept=("pytest -q",),
        limits=Limits(delegations=5, cost=1.5),
        idle_seconds=3.0,
        priority=Priority.CRITICAL,
        parameters={"text": "ünïcode \U0001f600 \x00", "deep": [1, {"a": None}], "big": 2**70},
        attempt=2,
    )
    with opened(open_store, 2) as (store, other):
        assert store.apply([RecordDelegation(full)]) == WriteResult()
        assert store.apply([]) == WriteResult()
        assert store.get(session(1)) == full
        assert other.get(session(1)) == full
        assert other.by_key("digest-readme") == full
        assert store.get(session(2)) is None
        assert store.by_key("other") is None
        assert store.keys("digest-", 5) == {"digest-readme": full.session_id}
        assert store.keys("digest-", 0) == store.keys("digest-readme!", 5) == {}
        newest = store.newest_by_agent(0)
        assert newest[full.agent] == max(newest.values())
        assert store.newest_by_agent(newest[full.agent]) == {}
        assert store.drop_keys("digest-") == 1
        assert store.by_key("digest-readme") is other.by_key("digest-readme") is None


@_promise
def an_outcome_is_recorded_once_and_the_first_one_stands(open_store: OpenStore) -> None:
    first, second = outcome(1, data={"n": 1}), outcome(1, State.FAILED, at=3000.0)
    with opened(open_store) as (store,):
        store.apply([RecordDelegation(record(1)), RecordDelegation(record(2))])
        assert not store.apply([first]).already_settled
        applied = store.apply([second, outcome(2), outcome(3)])
        assert applied.already_settled == (session(1), session(3))
        found = store.get(session(1))
        assert found is not None
        assert (found.state, found.result, found.settled_at) == (State.COMPLETED, first.result, 2000.0)
        assert (found.step_times, found.tokens, found.cost) == (first.step_times, 12, 0.5)
        assert store.count(State.COMPLETED) == 2


@_promise
def two_outcomes_in_one_group_are_one(open_store: OpenStore) -> None:
    with opened(open_store) as (store,):
        applied = store.apply([RecordDelegation(record(1)), outcome(1), outcome(1, State.FAILED)])
        assert applied.already_settled == (session(1),)
        assert store.count(State.COMPLETED) == 1


@_promise
def a_refusal_is_recorded_already_settled(open_store: OpenStore) -> None:
    refused = record(1, state=State.REFUSED, started_at=None, settled_at=1001.0, result=outcome(1, State.BLOCKED).result)
    with opened(open_store) as (store,):
        store.apply([RecordDelegation(refused)])
        assert store.get(session(1)) == refused
        assert store.live() == []
        assert store.apply([outcome(1)]).already_settled == (session(1),)


@_promise
def a_queued_delegation_starts_once(open_store: OpenStore) -> None:
    queued = record(1, state=State.QUEUED, started_at=None)
    times = (1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, *(None,) * 6)
    with opened(open_store) as (store,):
        store.apply([RecordDelegation(queued)])
        store.apply([StartDelegation(session(1), 1200.0, times)])
        store.apply([StartDelegation(session(1), 1300.0, times)])
        assert store.get(session(1)) == replace(queued, state=State.RUNNING, started_at=1200.0, step_times=times)
        store.apply([outcome(1)])
        store.apply([StartDelegation(session(1), 1400.0, times)])
        found = store.get(session(1))
        assert found is not None
        assert found.state is State.COMPLETED


@_promise
def a_clash_of_ids_is_reported_and_the_rest_of_the_group_is_kept(open_store: OpenStore) -> None:
    with opened(open_store) as (store,):
        store.apply([RecordDelegation(record(1))])
        theirs = record(1, agent="other")
        applied = store.apply(
            [RecordDelegation(record(2)), RecordDelegation(theirs), said(1, 8, chunk="x"), outcome(1), RecordDelegation(record(3))]
        )
        assert applied.clashes == (session(1),)
        assert not applied.already_settled
        assert store.get(session(1)) == record(1), "what followed a clash belongs to the delegation that was not recorded"
        assert [event for event in store.events(session(1)) if event.kind is EventKind.DATA] == []
        assert numbers_of(store.live()) == [1, 2, 3]


@_promise
def many_that_begin_at_once_are_all_recorded_also_beside_one_that_clashes(open_store: OpenStore) -> None:
    with opened(open_store) as (store,):
        store.apply([RecordDelegation(record(21, agent="first"))])
        applied = store.apply([begun(number, "token:ci" if number % 10 == 0 else None) for number in range(1, 41)])
        assert applied.clashes == (session(21),)
        assert sorted(numbers_of(store.live())) == list(range(1, 41))
        again = store.apply([begun(number, "token:ci" if number % 10 == 0 else None) for number in range(41, 81)])
        assert not again.clashes
        found = [store.get(session(number)) for number in range(1, 81)]
        assert [None if one is None or one.caller_info is None else one.caller_info.principal for one in found] == (
            9 * [None] + ["token:ci"]
        ) * 8


@_promise
def a_taken_key_names_its_holder(open_store: OpenStore) -> None:
    with opened(open_store, 2) as (store, other):
        store.apply([RecordDelegation(record(1, key="k"))])
        applied = other.apply([RecordDelegation(record(2, key="k")), RecordDelegation(record(3, key="l"))])
        assert dict(applied.taken_keys) == {session(2): session(1)}
        assert store.get(session(2)) is None
        within = store.apply([RecordDelegation(record(4, key="m")), RecordDelegation(record(5, key="m"))])
        assert dict(within.taken_keys) == {session(5): session(4)}
        assert numbers_of(store.live()) == [1, 3, 4]


@_promise
def try_apply_writes_like_apply(open_store: OpenStore) -> None:
    with opened(open_store) as (store,):
        assert store.try_apply([RecordDelegation(record(1)), RecordDelegation(record(2))]) is not None
        applied = store.try_apply([outcome(1), RecordDelegation(record(2))])
        assert applied is not None
        assert applied.clashes == (session(2),)
        assert store.count(State.COMPLETED) == 1


@_promise
def values_json_cannot_hold_lose_nothing_else(open_store: OpenStore) -> None:
    circle: dict[str, Any] = {}
    circle["self"] = circle
    deep: list[Any] = []
    for _ in range(400):
        deep = [deep]
    odd = ["\ud800", b"\xff", object(), circle, deep, float("inf"), {("a", 1): 2}, {1, 2}]
    with opened(open_store) as (store,):
        store.apply([RecordDelegation(record(n, parameters={"odd": value})) for n, value in enumerate(odd)])
        store.apply([outcome(n, data=value) for n, value in enumerate(odd)])
        store.apply([said(0, 8, chunk="\ud800"), SaveCheckpoint(session(0), 1.0, circle)])
        for number in range(len(odd)):
            found = store.get(session(number))
            assert found is not None
            assert found.state is State.COMPLETED
            assert found.result is not None
            assert found.result.summary == "Read the file. Counted it."
        assert len(store.events(session(0))) == 14


@_promise
def what_is_kept_cannot_be_changed_from_outside(open_store: OpenStore) -> None:
    given: dict[str, Any] = {"list": [1]}
    with opened(open_store) as (store,):
        store.apply([RecordDelegation(record(1, parameters=given)), SaveCheckpoint(session(1), 1.0, given)])
        given["list"].append(2)
        store.checkpoint(session(1))["list"].append(3)
        found = store.get(session(1))
        assert found is not None
        assert found.parameters == {"list": [1]}
        assert store.checkpoint(session(1)) == {"list": [1]}


# ---- trees, events, checkpoints


@_promise
def a_tree_comes_in_the_order_it_was_recorded(open_store: OpenStore) -> None:
    with opened(open_store) as (store,):
        store.apply([RecordDelegation(record(1)), RecordDelegation(record(9))])
        store.apply(
            [
                RecordDelegation(record(3, parent=1)),
                RecordDelegation(record(2, parent=1, created_at=1.0)),
                RecordDelegation(record(4, parent=3, root=1)),
            ]
        )
        assert numbers_of(store.tree(session(1))) == [1, 3, 2, 4]
        assert numbers_of(store.tree(session(9))) == [9]
        assert store.tree(session(3)) == []
        assert numbers_of(store.children(session(1))) == [3, 2]
        assert numbers_of(store.children(session(3))) == [4]
        assert store.children(session(8)) == []


@_promise
def events_are_steps_and_what_was_said_by_number(open_store: OpenStore) -> None:
    with opened(open_store, 2) as (store, other):
        store.apply([RecordDelegation(record(1)), said(1, 8, chunk="a"), said(1, 9, chunk="b")])
        assert [event.number for event in other.events(session(1))] == list(range(1, 10))
        store.apply([said(1, 9, chunk="a second one under the same number"), outcome(1, chunks=2)])
        events = other.events(session(1))
        assert [event.number for event in events] == list(range(1, 16))
        assert [event.body for event in events[7:9]] == [{"chunk": "a"}, {"chunk": "b"}]
        assert [event.number for event in other.events(session(1), after=8)] == list(range(9, 16))
        assert other.events(session(5)) == []


@_promise
def the_last_sign_of_life_is_the_newest_event(open_store: OpenStore) -> None:
    with opened(open_store) as (store,):
        store.apply([RecordDelegation(record(1)), RecordDelegation(record(2)), said(2, 8, at=1500.0), said(2, 9, at=1600.0)])
        assert store.last_sign([session(1), session(2), session(3)]) == {session(1): 1001.0, session(2): 1600.0}
        assert store.last_sign([]) == {}


@_promise
def the_last_checkpoint_is_kept(open_store: OpenStore) -> None:
    with opened(open_store, 2) as (store, other):
        store.apply([RecordDelegation(record(1)), SaveCheckpoint(session(1), 1.0, {"page": 1})])
        store.apply([SaveCheckpoint(session(1), 2.0, [2, None])])
        assert other.checkpoint(session(1)) == [2, None]
        assert other.checkpoint(session(2)) is None
