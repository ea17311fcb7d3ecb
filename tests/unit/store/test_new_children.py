"""Children enter the indexes of agents and trees in batches. No question shows whether that has happened yet."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from remit import BeginDelegation, HistoryQuery, SqliteStore, State
from remit.stores import sqlite
from remit.testing.store_suite import begun, numbers_of, outcome, session


def child(number: int, parent: int = 1) -> BeginDelegation:
    write = begun(number)
    lineage = write.delegation.lineage._replace(root_id=session(1), parent_id=session(parent))
    return write._replace(delegation=write.delegation._replace(lineage=lineage))


def answers(store: SqliteStore) -> dict[str, Any]:
    queries = (
        HistoryQuery(),
        HistoryQuery(root_id=session(1)),
        HistoryQuery(agent="digest"),
        HistoryQuery(states=(State.RUNNING,)),
        HistoryQuery(agent="digest", states=(State.COMPLETED,)),
    )
    return {
        "tree": numbers_of(store.tree(session(1))),
        "children": numbers_of(store.children(session(1))),
        "grandchildren": numbers_of(store.children(session(2))),
        "live": numbers_of(store.live()),
        "counts": (store.count(), store.count(State.RUNNING), store.count(State.COMPLETED)),
        "newest": store.newest_by_agent(0),
        "durations": store.durations("digest"),
        "spent": (store.spent_below(session(1), session(1)), store.spent_below(session(1), session(2))),
        "tally": store.tally().states,
        "history": [numbers_of(store.history(query)) for query in queries],
    }


def test_new_children_are_found_before_and_after_they_are_indexed(store: SqliteStore) -> None:
    for write in (begun(1), child(2), begun(3), child(4, 2), outcome(4)):
        store.apply([write])
    before = answers(store)
    assert before["tree"] == [1, 2, 4]
    assert before["live"] == [1, 2, 3]
    assert before["children"] == [2]
    assert before["grandchildren"] == [4]
    assert before["history"] == [[4, 3, 2, 1], [4, 2, 1], [4, 3, 2, 1], [3, 2, 1], [4]]
    store.optimize()
    assert answers(store) == before
    store.apply([child(5, 2), outcome(2)])  # a new child beside indexed ones, and an outcome of an indexed one
    before = answers(store)
    assert before["tree"] == [1, 2, 4, 5]
    assert before["live"] == [1, 3, 5]
    store.optimize()
    assert answers(store) == before


def test_children_that_another_process_indexes_meanwhile_are_counted_once(store: SqliteStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite, "CHILDREN_AT_ONCE", 20)
    store.apply([begun(1), *(child(number) for number in range(2, 4001))])
    store.apply([outcome(number, at=9000.0) for number in range(3701, 4001)])
    other = SqliteStore(store.path)
    with ThreadPoolExecutor(1) as threads:
        indexing = threads.submit(other.optimize)
        counts = set()
        while not indexing.done():
            counts.add((store.count(), store.count(State.RUNNING), sum(store.tally().states.values()), len(store.durations("digest"))))
    indexing.result()
    assert counts == {(4000, 3700, 4000, 300)}
    other.close()


def test_new_children_are_found_when_the_numbers_of_forgotten_ones_are_used_again(store: SqliteStore) -> None:
    store.apply([begun(1), child(2), child(3), outcome(1), outcome(2)])
    assert store.prune(settled_before=5000.0) == 0, "a new child is alive"
    store.apply([outcome(3)])
    store.optimize()
    assert store.prune(settled_before=5000.0) == 3
    store.apply([begun(1), child(4)])
    assert numbers_of(store.tree(session(1))) == [1, 4]
    assert numbers_of(store.live()) == [1, 4]
    store.optimize()
    assert numbers_of(store.tree(session(1))) == [1, 4]
