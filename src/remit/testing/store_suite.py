"""What every `Store` must do, as checks, and the sample delegations that they and other tests use.

Each check is given a function that opens the store: every call opens one more handle on the same, at first empty, contents,
the way a second process would. A check closes what it opens and raises `AssertionError` when a promise is broken.

    @pytest.mark.parametrize("check", STORE_CHECKS, ids=lambda check: check.__name__)
    def test_store(check, tmp_path):
        check(lambda: MyStore(tmp_path / "my.db"))
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from queue import Queue
from typing import Any, Protocol

from remit import (
    AppendEvent,
    Artifact,
    BeginDelegation,
    CallerInfo,
    Deadline,
    Delegation,
    ErrorInfo,
    Event,
    EventKind,
    Evidence,
    HistoryQuery,
    Limits,
    Lineage,
    Metadata,
    Owner,
    Priority,
    Record,
    RecordDelegation,
    Return,
    SaveCheckpoint,
    SettleDelegation,
    StartDelegation,
    State,
    Status,
    StopReason,
    Store,
    TaskContext,
    WriteResult,
)
from remit.core import record as records
from remit.core.budget import TreeLimits

BEFORE_RUN = 7
"""Steps before an agent runs."""


class OwnedStore(Store, Protocol):
    """A store with a settable owner: outcomes of delegations that another owner has taken over are not written."""

    owner_id: str | None


OpenStore = Callable[[], OwnedStore]
Check = Callable[[OpenStore], None]


def session(number: int) -> str:
    return f"sess_1700000000_{number:06}"


def record(number: int, **changed: Any) -> Record:
    """A running root delegation; `parent=` makes it a child of that number's."""
    parent = changed.pop("parent", None)
    agent = changed.get("agent", "digest")
    root = changed.pop("root", parent if parent is not None else number)
    at = changed.get("created_at", 1000.0 + number)
    plain: dict[str, Any] = {
        "session_id": session(number),
        "root_id": session(root),
        "parent_id": None if parent is None else session(parent),
        "depth": 1 if parent is None else 2,
        "path": ("orchestrator", agent),
        "agent": agent,
        "parameters": {"path": "README.md"},
        "caller": "orchestrator",
        "priority": Priority.NORMAL,
        "state": State.RUNNING,
        "created_at": at,
        "timeout_seconds": 60.0,
        "deadline_at": at + 60.0,
        "owner": "one",
        "started_at": at,
        "step_times": (*(at,) * BEFORE_RUN, *(None,) * 6),
    }
    return Record(**{**plain, **changed})


def begun(number: int, principal: str | None = None) -> BeginDelegation:
    """The same, as the engine records it; `principal`: the external caller."""
    at = 1000.0 + number
    lineage = Lineage.root(session(number), "digest")
    caller_info = None if principal is None else CallerInfo(principal, "grpc")
    delegation = Delegation(lineage, "digest", {}, "orchestrator", Priority.NORMAL, Deadline(60.0, 50.0, 60.0), at, caller_info=caller_info)
    return BeginDelegation(delegation, State.RUNNING, "one", at, [*(at,) * BEFORE_RUN, *(None,) * 6])


def outcome(number: int, state: State = State.COMPLETED, *, at: float = 2000.0, data: Any = None, chunks: int = 0) -> SettleDelegation:
    status = {State.COMPLETED: Status.COMPLETED, State.FAILED: Status.FAILED, State.BLOCKED: Status.BLOCKED}.get(state, Status.PARTIAL)
    fault = ErrorInfo(type="execution", message="It broke.", code="UNKNOWN_ERROR", recoverable=True, recommendation="Try again.")
    result = Return(
        status=status,
        summary="Read the file. Counted it.",
        artifacts=(Artifact(type="report", path="a.md", evidence=Evidence.CHECKED, size=1, sha256="00", mtime=1.5),),
        metadata=Metadata(
            session_id=session(number),
            agent_type="digest",
            delegation_depth=1,
            delegation_path=("orchestrator", "digest"),
            duration_seconds=0.25,
            extra={"findings_count": 3},
        ),
        errors=() if status is Status.COMPLETED else (fault,),
        data=data,
        stop_reason=StopReason.FINISHED,
        warnings=("long",),
        extra={"task_number": 7},
    )
    return SettleDelegation(session(number), state, at, result, (at,) * 13, 12, 0.5, chunks)


def said(number: int, event_number: int, at: float = 1500.0, **body: Any) -> AppendEvent:
    return AppendEvent(Event(session_id=session(number), number=event_number, at=at, kind=EventKind.DATA, body=body))


def owner(owner_id: str, opened_at: float = 1.0) -> Owner:
    return Owner(owner_id=owner_id, pid=1, pid_started="boot:1", pid_space="pid:1", host="here", opened_at=opened_at)


@contextmanager
def opened(open_store: OpenStore, handles: int = 1) -> Iterator[tuple[OwnedStore, ...]]:
    with ExitStack() as stack:
        yield tuple(stack.enter_context(closing(open_store())) for _ in range(handles))


def found_in(store: Store, number: int) -> Record:
    found = store.get(session(number))
    assert found is not None
    return found


def numbers_of(records: list[Record]) -> list[int]:
    return [int(found.session_id[-6:]) for found in records]


STORE_CHECKS: list[Check] = []


def _promise(check: Check) -> Check:
    STORE_CHECKS.append(check)
    return check


# ---- recording and settling


@_promise
def recorded_delegations_are_read_back_whole(open_store: OpenStore) -> None:
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
def only_the_first_outcome_is_recorded(open_store: OpenStore) -> None:
    first, second = outcome(1, data={"n": 1}), outcome(1, State.FAILED, at=3000.0)
    with opened(open_store) as (store,):
        store.apply([RecordDelegation(record(1)), RecordDelegation(record(2))])
        assert not store.apply([first]).already_settled
        applied = store.apply([second, outcome(2), outcome(3)])
        assert applied.already_settled == (session(1), session(3))
        found = found_in(store, 1)
        assert (found.state, found.result, found.settled_at) == (State.COMPLETED, first.result, 2000.0)
        assert (found.step_times, found.tokens, found.cost) == (first.step_times, 12, 0.5)
        assert store.count(State.COMPLETED) == 2
        applied = store.apply([RecordDelegation(record(4)), outcome(4), outcome(4, State.FAILED)])
        assert applied.already_settled == (session(4),), "also within one group"


@_promise
def a_queued_delegation_starts_once_and_a_refused_one_never(open_store: OpenStore) -> None:
    queued = record(1, state=State.QUEUED, started_at=None)
    refused = record(2, state=State.REFUSED, started_at=None, settled_at=1001.0, result=outcome(2, State.BLOCKED).result)
    times = (1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, *(None,) * 6)
    with opened(open_store) as (store,):
        store.apply([RecordDelegation(queued)])
        store.apply([StartDelegation(session(1), 1200.0, times)])
        store.apply([StartDelegation(session(1), 1300.0, times)])
        assert store.get(session(1)) == replace(queued, state=State.RUNNING, started_at=1200.0, step_times=times)
        store.apply([outcome(1)])
        store.apply([StartDelegation(session(1), 1400.0, times)])
        found = found_in(store, 1)
        assert found.state is State.COMPLETED
        store.apply([RecordDelegation(refused)])
        assert store.get(session(2)) == refused
        assert store.live() == []


@_promise
def a_clash_of_ids_is_reported_and_the_rest_of_the_group_is_kept(open_store: OpenStore) -> None:
    with opened(open_store) as (store,):
        store.apply([RecordDelegation(record(1))])
        theirs = record(1, agent="other")
        applied = store.try_apply(
            [RecordDelegation(record(2)), RecordDelegation(theirs), said(1, 8, chunk="x"), outcome(1), RecordDelegation(record(3))]
        )
        assert applied is not None
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
            found = found_in(store, number)
            assert found.state is State.COMPLETED
            assert found.result is not None
            assert found.result.summary == "Read the file. Counted it."
        assert len(store.events(session(0))) == 14


# ---- trees, events, checkpoints


@_promise
def a_tree_comes_in_the_order_it_was_recorded(open_store: OpenStore) -> None:
    with opened(open_store) as (store,):
        store.apply([RecordDelegation(record(1)), RecordDelegation(record(9))])
        children = (record(3, parent=1), record(2, parent=1, created_at=1.0), record(4, parent=3, root=1))
        store.apply([RecordDelegation(one) for one in children])
        assert numbers_of(store.tree(session(1))) == [1, 3, 2, 4]
        assert numbers_of(store.tree(session(9))) == [9]
        assert store.tree(session(3)) == []
        assert numbers_of(store.children(session(1))) == [3, 2]
        assert numbers_of(store.children(session(3))) == [4]
        assert store.children(session(8)) == []


@_promise
def events_are_numbered_steps_and_output(open_store: OpenStore) -> None:
    with opened(open_store, 2) as (store, other):
        store.apply([RecordDelegation(record(1)), said(1, 8, chunk="a"), said(1, 9, chunk="b")])
        assert [event.number for event in other.events(session(1))] == list(range(1, 10))
        store.apply([said(1, 9, chunk="a second one under the same number"), outcome(1, chunks=2)])
        found = other.events(session(1))
        assert [event.number for event in found] == list(range(1, 16))
        assert other.events(session(1), 4, 3) == found[4:7]
        assert [event.body for event in found[7:9]] == [{"chunk": "a"}, {"chunk": "b"}]
        assert [event.number for event in other.events(session(1), after=8)] == list(range(9, 16))
        assert other.events(session(5)) == []


@_promise
def progress_of_several_delegations_is_read_at_once(open_store: OpenStore) -> None:
    with opened(open_store) as (store,):
        store.apply([RecordDelegation(record(1)), RecordDelegation(record(2, state=State.QUEUED, started_at=None))])
        store.apply([said(1, 8, at=1500.0), said(1, 9, at=1600.0)])
        heads = store.heads([session(1), session(2), session(3)])
        assert heads == {session(1): records.Head(State.RUNNING, "one", 9), session(2): records.Head(State.QUEUED, "one", 0)}
        assert store.last_sign([session(1), session(2), session(3)]) == {session(1): 1600.0, session(2): 1002.0}


@_promise
def the_last_checkpoint_is_kept(open_store: OpenStore) -> None:
    with opened(open_store, 2) as (store, other):
        store.apply([RecordDelegation(record(1)), SaveCheckpoint(session(1), 1.0, {"page": 1})])
        store.apply([SaveCheckpoint(session(1), 2.0, [2, None])])
        assert other.checkpoint(session(1)) == [2, None]
        assert other.checkpoint(session(2)) is None


# ---- history


def _with_history(store: OwnedStore) -> None:
    """1-3 completed, 4 and 5 failed, 6 queued, 7 running; 2 and 5 by another agent, 3 a child of 1; 8 was created long ago."""
    task = TaskContext(task_number=195)
    writes = [record(1), record(2, agent="other"), record(3, parent=1), record(4, task=task), record(5, agent="other")]
    writes += [record(6, state=State.QUEUED, started_at=None), record(7, task=task), record(8, created_at=10.0)]
    store.apply([RecordDelegation(one) for one in writes])
    store.apply([outcome(n) for n in (1, 2, 3)] + [outcome(n, State.FAILED) for n in (4, 5, 8)])


@_promise
def history_is_found_by_each_filter_and_their_combinations(open_store: OpenStore) -> None:
    expected: list[tuple[HistoryQuery, list[int]]] = [
        (HistoryQuery(), [7, 6, 5, 4, 3, 2, 1, 8]),
        (HistoryQuery(limit=2), [7, 6]),
        (HistoryQuery(agent="other"), [5, 2]),
        (HistoryQuery(states=(State.FAILED,)), [5, 4, 8]),
        (HistoryQuery(agent="digest", states=(State.FAILED,)), [4, 8]),
        (HistoryQuery(root_id=session(1)), [3, 1]),
        (HistoryQuery(root_id=session(1), since=1002.0), [3]),
        (HistoryQuery(task_number=195), [7, 4]),
        (HistoryQuery(task_number=195, states=(State.FAILED,), agent="digest"), [4]),
        (HistoryQuery(since=1003.0, until=1005.0), [5, 4, 3]),
        (HistoryQuery(before_session=session(4)), [3, 2, 1, 8]),
        (HistoryQuery(before_session=session(5), agent="other"), [2]),
    ]
    with opened(open_store) as (store,):
        _with_history(store)
        for query, numbers in expected:
            assert numbers_of(store.history(query)) == numbers, query
        assert [store.count(state) for state in (None, "completed", "failed", "queued", "timeout")] == [8, 3, 3, 1, 0]
        assert numbers_of(store.live()) == [6, 7]
        before = store.history(HistoryQuery())
        store.optimize()
        assert store.history(HistoryQuery()) == before


def _with_visitors(store: OwnedStore) -> None:
    """1, its child 2 and 3 belong to one principal, 4 to another; 5 to none; 3 and 4 have conversations of the same name."""
    one, other = (
        CallerInfo("token:one", "grpc", traceparent="00-1-2-01", max_depth=2, limits=Limits(tokens=9)),
        CallerInfo("token:other", "a2a", "talk"),
    )
    caller_info = {1: one, 2: one, 3: one._replace(session="talk"), 4: other, 5: None}
    store.apply([RecordDelegation(record(n, caller_info=caller_info[n], **({"parent": 1} if n == 2 else {}))) for n in caller_info])
    store.apply([outcome(1), outcome(2), outcome(4, State.FAILED)])


@_promise
def callers_are_recorded_and_found(open_store: OpenStore) -> None:
    expected: list[tuple[HistoryQuery, list[int]]] = [
        (HistoryQuery(principal="token:one"), [3, 2, 1]),
        (HistoryQuery(principal="token:one", roots_only=True), [3, 1]),
        (HistoryQuery(principal="token:one", states=(State.COMPLETED, State.FAILED)), [2, 1]),
        (HistoryQuery(principal="token:one", before_session=session(3), limit=1), [2]),
        (HistoryQuery(conversation="talk"), [4, 3]),
        (HistoryQuery(conversation="talk", principal="token:one"), [3]),
        (HistoryQuery(roots_only=True), [5, 4, 3, 1]),
    ]
    with opened(open_store) as (store,):
        _with_visitors(store)
        for query, numbers in expected:
            assert numbers_of(store.history(query)) == numbers, query
        kept = [getattr(store.get(session(n)), "caller_info", None) for n in (1, 4, 5)]
        one = CallerInfo("token:one", "grpc", traceparent="00-1-2-01", max_depth=2, limits=Limits(tokens=9))
        assert kept == [one, CallerInfo("token:other", "a2a", "talk"), None]


@_promise
def spending_of_a_principal_outlives_its_history(open_store: OpenStore) -> None:
    """Nothing is refilled. Refusals spent nothing; live delegations spent what they reported."""
    with opened(open_store) as (store,):
        assert store.spent("token:one") == records.Spending()
        _with_visitors(store)
        spent = Event(session_id=session(3), number=8, at=1.0, kind=EventKind.SPENT, body={"tokens": 5, "cost": 0.25})
        store.apply([AppendEvent(spent), RecordDelegation(record(6, state=State.REFUSED, caller_info=CallerInfo("token:one")))])
        assert store.spent("token:one") == records.Spending(3, 29, 1.25, 1001.0, alive=1)
        assert store.spent("token:other") == records.Spending(1, 12, 0.5, 1004.0)
        store.apply([outcome(3)])
        before = store.spent("token:one")
        assert store.prune(settled_before=5000.0) == 5
        assert store.spent("token:one") == before == records.Spending(3, 36, 1.5, 1001.0)


@_promise
def nothing_is_recorded_beyond_the_limits_of_a_principal(open_store: OpenStore) -> None:
    """Whichever process sets them, and whichever records it: alone, in a group, and beside others."""
    with opened(open_store, 2) as (store, other):
        assert store.limits("token:ci") == Limits()
        store.apply([begun(1, "token:ci")])
        other.set_limits("token:ci", Limits(delegations=4, alive=3))
        assert store.limits("token:ci") == Limits(delegations=4, alive=3)
        applied = store.apply([begun(n, "token:ci" if n < 6 else None) for n in range(2, 8)])
        assert dict(applied.over_budget) == dict.fromkeys((session(4), session(5)), "3 delegations alive at once")
        assert numbers_of(other.live()) == [1, 2, 3, 6, 7]
        late = other.try_apply([begun(8, "token:ci")])
        assert late is not None
        assert dict(late.over_budget) == {session(8): "3 delegations alive at once"}
        store.apply([outcome(1), outcome(2), begun(9, "token:ci"), said(9, 8)])
        assert store.apply([begun(10, "token:ci"), said(10, 8)]).over_budget == {session(10): "4 delegations in all"}
        assert store.events(session(10)) == []
        refusal = RecordDelegation(record(11, state=State.REFUSED, caller_info=CallerInfo("token:ci")))
        assert not store.apply([refusal]).over_budget, "a refusal draws nothing"
        other.set_limits("token:ci", Limits(tokens=24))
        assert other.apply([begun(12, "token:ci")]).over_budget == {session(12): "24 tokens"}
        other.set_limits("token:ci", Limits())
        assert not store.apply([begun(12, "token:ci")]).over_budget
        assert store.spent("token:ci") == records.Spending(5, 24, 1.0, 1001.0, alive=3)


@_promise
def nothing_is_recorded_beyond_the_limits_of_a_tree(open_store: OpenStore) -> None:
    """Whichever process records it. Spending is recorded, and what passes a limit is reported, in the order of the record."""

    def child(number: int, limits: TreeLimits, parent: int = 1) -> BeginDelegation:
        write = begun(number)
        lineage = write.delegation.lineage._replace(root_id=session(1), parent_id=session(parent))
        return write._replace(delegation=write.delegation._replace(lineage=lineage), limits=limits)

    def spending(number: int, event_number: int, tokens: int) -> AppendEvent:
        event = Event(session_id=session(number), number=event_number, at=1.0, kind=EventKind.SPENT, body={"tokens": tokens, "cost": 0.5})
        return AppendEvent(event, tree)

    tree = TreeLimits(session(1), ((session(1), Limits(delegations=4, alive=3, tokens=30)),))
    inner = tree._replace(scopes=((session(2), Limits(delegations=2)), *tree.scopes))
    with opened(open_store, 2) as (store, other):
        store.apply([begun(1)])
        applied = store.apply([child(2, inner), child(3, tree), child(4, tree), begun(9)])
        assert dict(applied.over_limits) == {session(4): "3 delegations alive at once"}
        late = other.try_apply([child(5, tree)])
        assert late is not None
        assert dict(late.over_limits) == {session(5): "3 delegations alive at once"}
        store.apply([outcome(3)])
        assert other.apply([child(6, inner, 2)]) == WriteResult()
        assert dict(store.apply([child(7, inner, 2)]).over_limits) == {session(7): "2 delegations in all"}
        assert dict(other.apply([child(8, tree)]).over_limits) == {session(8): "4 delegations in all"}
        assert numbers_of(other.live()) == [1, 2, 9, 6]
        assert store.apply([spending(6, 8, 10)]) == WriteResult()
        applied = other.apply([spending(2, 8, 8), spending(6, 9, 11)])
        assert dict(applied.overspent) == {(session(6), 9): "30 tokens"}
        assert [event.number for event in store.events(session(6)) if event.kind is EventKind.SPENT] == [8, 9]
        assert store.spent_below(session(1), session(2)) == records.Spending(2, 19, 1.0, alive=2)
        assert other.spent_below(session(1), session(1)) == records.Spending(4, 31, 1.5, alive=3)


@_promise
def durations_distinguish_completed_and_stopped_runs(open_store: OpenStore) -> None:
    """Failed, cancelled and unstarted runs are not samples."""
    with opened(open_store) as (store,):
        _with_history(store)
        store.apply([outcome(6, State.CANCELLED), outcome(7, State.TIMEOUT, at=1067.0)])
        runs = store.durations("digest")
        assert [run.is_completed for run in runs] == [False, True, True]
        assert runs[0].seconds == 60.0
        assert {run.timeout_seconds for run in runs} == {60.0}
        assert store.durations("nobody") == []
        store.apply([RecordDelegation(record(21, agent="talker"))])
        store.apply([said(21, 8, at=1026.0), said(21, 9, at=1066.0), said(21, 10, at=1071.0), outcome(21, at=1081.0, chunks=3)])
        (run,) = store.durations("talker")
        assert (run.seconds, run.largest_silence, run.last_silence) == (60.0, 40.0, 10.0)


@_promise
def delegations_are_summed_up(open_store: OpenStore) -> None:
    """By agent and state, with their latencies; live ones have none yet."""
    with opened(open_store) as (store,):
        assert store.tally().states == {}
        _with_history(store)
        summed = store.tally()
        assert summed.states == {
            ("digest", State.COMPLETED): 2, ("digest", State.FAILED): 2, ("digest", State.QUEUED): 1, ("digest", State.RUNNING): 1,
            ("other", State.COMPLETED): 1, ("other", State.FAILED): 1,
        }  # fmt: skip
        assert (len(summed.latencies), min(summed.latencies), max(summed.latencies)) == (6, 995.0, 1990.0)
        assert sum(store.tally(since=1004.0).states.values()) == 4
        whole = sum(store.tally().states.values())
        parts = [store.tally(until=1002.0), store.tally(1002.0, 1004.0), store.tally(since=1004.0)]
        assert sum(sum(part.states.values()) for part in parts) == whole


@_promise
def old_trees_are_deleted_whole(open_store: OpenStore) -> None:
    with opened(open_store) as (store,):
        two_trees = (record(1, key="k"), record(2, parent=1), record(3), record(4, parent=3))
        store.apply([RecordDelegation(one) for one in two_trees])
        store.apply([RecordDelegation(record(5)), said(1, 8, chunk="a"), SaveCheckpoint(session(1), 1.0, 1)])
        store.apply([outcome(1), outcome(2, at=2001.0), outcome(3), outcome(5, at=5000.0)])
        assert store.prune(settled_before=2001.0) == 0, "a child was settled later, another is still running"
        assert store.prune(settled_before=3000.0) == 2
        assert numbers_of(store.history(HistoryQuery())) == [5, 4, 3]
        assert store.events(session(1)) == []
        assert store.checkpoint(session(1)) is None
        assert store.by_key("k") is None
        assert not store.apply([RecordDelegation(record(6, key="k"))]).taken_keys


# ---- several processes


@_promise
def owners_register_and_are_removed(open_store: OpenStore) -> None:
    with opened(open_store, 2) as (store, other):
        store.register_owner(owner("two", 2.0))
        other.register_owner(owner("one", 1.0))
        store.register_owner(owner("one", 3.0))
        assert other.owners() == [owner("two", 2.0), owner("one", 3.0)]
        other.remove_owner("two")
        other.remove_owner("nobody")
        assert store.owners() == [owner("one", 3.0)]


@_promise
def a_living_owner_takes_over_what_a_dead_one_ran(open_store: OpenStore) -> None:
    with opened(open_store, 2) as (dead, living):
        dead.owner_id, living.owner_id = "one", "two"
        dead.apply([RecordDelegation(record(n)) for n in (1, 2, 3)])
        dead.apply([outcome(1)])
        everything = [session(n) for n in (1, 2, 3, 9)]
        taken = living.take_over(everything, of="one", to="two")
        assert numbers_of(taken) == [2, 3], "what is settled stays settled"
        assert {found.owner for found in taken} == {"two"}
        assert living.take_over(everything, of="one", to="three") == [], "only one takes over"
        late = dead.apply([outcome(2, State.FAILED), SaveCheckpoint(session(2), 1.0, "late")])
        assert late.already_settled == (session(2),), "the dead one was only slow: its outcome is no longer wanted"
        assert living.checkpoint(session(2)) is None
        assert not living.apply([outcome(2)]).already_settled
        for number in (2, 3):
            living.requeue(session(number), owner="two")
        dead.requeue(session(3), owner="one")
        assert living.get(session(3)) == record(3, owner="two", state=State.QUEUED, started_at=None, attempt=2)
        assert living.count(State.COMPLETED) == 2


@_promise
def a_delegation_of_a_queue_is_claimed_once_for_each_ticket(open_store: OpenStore) -> None:
    with opened(open_store, 2) as (first, second):
        first.owner_id, second.owner_id = "one", "two"
        waiting = record(1, state=State.QUEUED, started_at=None, owner="", queue="shop:digest")
        first.apply([RecordDelegation(waiting)])
        assert first.claim(session(1), ticket=1, owner="one") == waiting, "the record before the claim"
        assert second.claim(session(1), ticket=1, owner="two") is None, "delivered twice: one of them has it"
        assert second.heads([session(1)])[session(1)].queue == "shop:digest"
        before = second.claim(session(1), ticket=2, owner="two")
        assert before is not None
        assert (before.owner, before.ticket) == ("one", 1)
        assert first.apply([outcome(1)]).already_settled == (session(1),), "the first worker was superseded"
        assert not second.apply([outcome(1)]).already_settled
        assert first.claim(session(1), ticket=3, owner="one") is None, "it has ended"
        assert first.claim(session(2), ticket=1, owner="one") is None
        first.apply([RecordDelegation(record(3))])
        assert second.claim(session(3), ticket=1, owner="two") is None, "it runs where it was made, in no queue"


@_promise
def watchers_are_notified_or_must_poll(open_store: OpenStore) -> None:
    with opened(open_store, 2) as (store, other):
        heard: Queue[str] = Queue()
        stop = store.watch(heard.put)
        if stop is None:
            return
        other.apply([RecordDelegation(record(1))])
        assert heard.get(timeout=5) == "write"
        other.request_cancel(records.CancelRequest(session_id=session(1), reason="no", source="cli", at=1.0))
        assert heard.get(timeout=5) == "cancel"
        stop()


@_promise
def a_cancel_request_reaches_its_owner_once(open_store: OpenStore) -> None:
    with opened(open_store, 2) as (store, other):
        store.apply([RecordDelegation(record(1)), RecordDelegation(record(2, owner="two")), RecordDelegation(record(3))])
        store.apply([outcome(3)])
        requests = [records.CancelRequest(session_id=session(n), reason="not needed", source="cli", at=1.0) for n in (1, 2, 3)]
        for request in requests:
            other.request_cancel(request)
        assert store.take_cancels("one") == requests[:1]
        assert store.take_cancels("one") == []
        assert other.take_cancels("two") == requests[1:2]


@_promise
def the_stamp_changes_when_another_has_written(open_store: OpenStore) -> None:
    with opened(open_store, 2) as (store, other):
        before = store.change_stamp()
        assert store.change_stamp() == before
        store.apply([RecordDelegation(record(1))])
        assert store.change_stamp() == before, "a store does not report its own writes"
        other.apply([RecordDelegation(record(2))])
        after = store.change_stamp()
        assert after != before
        other.request_cancel(records.CancelRequest(session_id=session(1), reason="", source="cli", at=1.0))
        assert store.change_stamp() != after
