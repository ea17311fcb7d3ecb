"""Any writes to a store: groups equal single writes, and queries equal a plain filter."""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from remit import (
    CallerInfo,
    HistoryQuery,
    MemoryStore,
    Record,
    RecordDelegation,
    SaveCheckpoint,
    StartDelegation,
    State,
    TaskContext,
    Write,
)
from remit.core.states import LIVE
from remit.testing.store_suite import outcome, record, said, session

NUMBERS = st.integers(0, 14)
OWNERS = st.sampled_from(["one", "two"])
ENDS = st.sampled_from([state for state in State if state not in LIVE])
TIMES = st.floats(900, 1100, allow_nan=False).map(lambda at: round(at, 1))
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
CALLER_INFOS = st.none() | st.builds(
    lambda name, session: CallerInfo(name, "grpc", session), st.sampled_from(["token:a", "cert:b"]), st.none() | st.sampled_from(["s", "t"])
)
AGENTS = st.sampled_from(["digest", "other", "worker.read_file"])


@st.composite
def recordings(draw: st.DrawFn) -> RecordDelegation:
    number = draw(NUMBERS)
    state = draw(st.sampled_from([State.QUEUED, State.RUNNING, State.RUNNING, State.REFUSED]))
    at = draw(TIMES)
    changed: dict[str, Any] = {
        "agent": draw(AGENTS),
        "state": state,
        "created_at": at,
        "started_at": at if state is State.RUNNING else None,
        "settled_at": at if state is State.REFUSED else None,
        "owner": draw(OWNERS),
        "key": draw(st.none() | st.sampled_from(["k", "l", "m"])),
        "task": draw(st.none() | st.builds(TaskContext, task_number=st.none() | st.integers(1, 2))),
        "caller_info": draw(CALLER_INFOS),
        "parameters": draw(st.dictionaries(st.text(max_size=3), JSON, max_size=2)),
    }
    if number >= 10:  # a child of one of the first three
        changed["parent"] = number % 3
    return RecordDelegation(record(number, **changed))


WRITES: st.SearchStrategy[Write] = st.one_of(
    recordings(),
    st.builds(lambda n, at: StartDelegation(session(n), at, record(n).step_times), NUMBERS, TIMES),
    st.builds(lambda n, s, at, data, c: outcome(n, s, at=at + 100, data=data, chunks=c), NUMBERS, ENDS, TIMES, JSON, st.integers(0, 3)),
    st.builds(lambda n, e, at, body: said(n, e, at, chunk=body), NUMBERS, st.integers(8, 12), TIMES, JSON),
    st.builds(lambda n, at, value: SaveCheckpoint(session(n), at, value), NUMBERS, TIMES, JSON),
)
QUERIES = st.builds(
    HistoryQuery,
    root_id=st.none() | NUMBERS.map(session),
    agent=st.none() | AGENTS,
    states=st.lists(st.sampled_from(State), max_size=3).map(tuple),
    principal=st.none() | st.sampled_from(["token:a", "cert:b"]),
    conversation=st.none() | st.sampled_from(["s", "t"]),
    roots_only=st.booleans(),
    task_number=st.none() | st.integers(1, 2),
    since=st.none() | TIMES,
    until=st.none() | TIMES,
    limit=st.integers(0, 6),
    before_session=st.none() | NUMBERS.map(session),
)


def well_formed(writes: list[Write]) -> list[Write]:
    """In the order of an engine."""
    kinds = ["RecordDelegation", "StartDelegation", "SettleDelegation", "AppendEvent", "SaveCheckpoint"]
    return sorted(writes, key=lambda write: kinds.index(type(write).__name__))


def matches(record: Record, query: HistoryQuery) -> bool:
    """A query as a plain filter."""
    info = record.caller_info
    wanted = (
        (query.root_id, record.root_id),
        (query.agent, record.agent),
        (query.task_number, record.task and record.task.task_number),
        (query.principal, info and info.principal),
        (query.conversation, info and info.session),
    )
    return (
        all(asked is None or asked == found for asked, found in wanted)
        and (not query.states or record.state in query.states)
        and not (query.roots_only and record.parent_id is not None)
        and (query.since is None or record.created_at >= query.since)
        and (query.until is None or record.created_at <= query.until)
    )


@settings(max_examples=60)
@given(writes=st.lists(WRITES, max_size=30).map(well_formed), query=QUERIES, owner_id=st.none() | OWNERS)
def test_groups_equal_single_writes_and_queries_a_plain_filter(writes: list[Write], query: HistoryQuery, owner_id: str | None) -> None:
    known = {write.record.session_id for write in writes if isinstance(write, RecordDelegation)}
    writes = [one for one in writes if not isinstance(one, RecordDelegation) or one.record.parent_id in (None, *known)]
    grouped, single = MemoryStore(), MemoryStore()
    grouped.owner_id = single.owner_id = owner_id
    result = grouped.apply(writes)
    everything = grouped.history(HistoryQuery(limit=100))
    if not result.clashes and not result.taken_keys:  # after a clash, later writes of the group belong to nothing
        for write in writes:
            single.apply([write])
        assert everything == single.history(HistoryQuery(limit=100))
    if query.before_session is None:
        assert grouped.history(query) == [record for record in everything if matches(record, query)][: max(0, query.limit)]
    assert grouped.live() == sorted((one for one in everything if one.state in LIVE), key=grouped.live().index)
    assert grouped.count() == len(everything)
