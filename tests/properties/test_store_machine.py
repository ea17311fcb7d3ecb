"""A state machine drives the SQLite store beside the memory model: after any writes every question has the same answer (S8)."""

import shutil
import tempfile
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from remit.core.delegation import CallerInfo, TaskContext
from remit.core.record import CancelRequest, HistoryQuery, RecordDelegation, SaveCheckpoint, Spending, StartDelegation, Write
from remit.core.states import LIVE, State
from remit.stores import MemoryStore, SqliteStore
from remit.stores.rows import decoded, encoded, packed, record_of, row_of, unpacked
from remit.testing.store_samples import outcome, owner, record, said, session

NUMBERS = st.integers(0, 14)
OWNERS = st.sampled_from(["one", "two"])
ENDS = st.sampled_from([state for state in State if state not in LIVE])
TIMES = st.floats(900, 1100, allow_nan=False).map(lambda at: round(at, 1))
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
CAME = st.none() | st.builds(
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
        "caller_info": draw(CAME),
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
    state=st.none() | st.sampled_from(State),
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
    """As an engine writes: of one delegation, what comes first comes first."""
    kinds = ["RecordDelegation", "StartDelegation", "SettleDelegation", "AppendEvent", "SaveCheckpoint"]
    return sorted(writes, key=lambda write: kinds.index(type(write).__name__))


class StoresAgree(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp())
        self.real = [SqliteStore(self.folder / "remit.db") for _ in range(2)]
        self.model = [MemoryStore()]
        self.model.append(MemoryStore(beside=self.model[0]))

    def teardown(self) -> None:
        for store in self.real:
            store.close()
        shutil.rmtree(self.folder)

    @rule(handle=st.integers(0, 1), owner_id=st.none() | OWNERS)
    def become(self, handle: int, owner_id: str | None) -> None:
        self.real[handle].owner_id = self.model[handle].owner_id = owner_id

    @rule(handle=st.integers(0, 1), writes=st.lists(WRITES, max_size=8).map(well_formed), quick=st.booleans())
    def apply(self, handle: int, writes: list[Write], quick: bool) -> None:
        real, model = self.real[handle], self.model[handle]
        writes = [write for write in writes if not self.is_orphan(write)]
        assert (real.try_apply(writes) if quick else real.apply(writes)) == model.apply(writes)

    def is_orphan(self, write: Write) -> bool:
        """No engine records a child before its caller."""
        parent_id = write.record.parent_id if isinstance(write, RecordDelegation) else None
        return parent_id is not None and self.model[0].get(parent_id) is None

    @rule(numbers=st.lists(NUMBERS, max_size=4), of=OWNERS, to=OWNERS)
    def take_over(self, numbers: list[int], of: str, to: str) -> None:
        session_ids = [session(number) for number in numbers]
        assert self.real[0].take_over(session_ids, of=of, to=to) == self.model[0].take_over(session_ids, of=of, to=to)

    @rule(number=NUMBERS, of=OWNERS)
    def requeue(self, number: int, of: str) -> None:
        self.real[1].requeue(session(number), owner=of)
        self.model[1].requeue(session(number), owner=of)

    @rule(number=NUMBERS, of=OWNERS)
    def cancel(self, number: int, of: str) -> None:
        request = CancelRequest(session_id=session(number), reason="", source="cli", at=1.0)
        self.real[0].request_cancel(request)
        self.model[0].request_cancel(request)
        assert self.real[1].take_cancels(of) == self.model[1].take_cancels(of)

    @rule(owner_id=OWNERS, opened_at=TIMES, leaves=st.booleans())
    def come_and_go(self, owner_id: str, opened_at: float, leaves: bool) -> None:
        for store in (self.real[0], self.model[0]):
            store.dismiss(owner_id) if leaves else store.enrol(owner(owner_id, opened_at))
        assert self.real[1].owners() == self.model[1].owners()

    @rule(before=TIMES)
    def prune(self, before: float) -> None:
        assert self.real[0].prune(settled_before=before + 100) == self.model[0].prune(settled_before=before + 100)
        self.real[0].optimize()

    @rule()
    def reopen(self) -> None:
        owner_id = self.real[1].owner_id
        self.real[1].close()
        self.real[1] = SqliteStore(self.folder / "remit.db")
        self.real[1].owner_id = owner_id

    @rule(query=QUERIES)
    def search(self, query: HistoryQuery) -> None:
        assert self.real[0].history(query) == self.model[0].history(query)

    @invariant()
    def the_same_is_known(self) -> None:
        real, model = self.real[1], self.model[1]
        assert real.history(HistoryQuery()) == model.history(HistoryQuery())
        assert real.live() == model.live()
        for number in range(15):
            session_id = session(number)
            assert real.events(session_id) == model.events(session_id)
            assert real.checkpoint(session_id) == model.checkpoint(session_id)
        for number in range(3):
            assert real.tree(session(number)) == model.tree(session(number))
            assert real.children(session(number)) == model.children(session(number))
        session_ids = [session(number) for number in range(15)]
        assert real.last_sign(session_ids) == model.last_sign(session_ids)
        assert [real.count(state) for state in (None, *State)] == [model.count(state) for state in (None, *State)]
        assert [real.by_key(key) for key in "klm"] == [model.by_key(key) for key in "klm"]
        assert real.heads(session_ids) == model.heads(session_ids)
        assert [_about(real.drawn(name)) for name in ("token:a", "cert:b")] == [_about(model.drawn(name)) for name in ("token:a", "cert:b")]
        assert real.durations("digest") == model.durations("digest")
        assert (real.tally().states, real.tally().tokens) == (model.tally().states, model.tally().tokens)


def _about(drawn: Spending) -> tuple[Any, ...]:
    """Sums of money are added in another order."""
    return drawn.delegations, drawn.tokens, round(drawn.cost, 6), drawn.since


StoresAgree.TestCase.settings = settings(
    max_examples=40, stateful_step_count=15, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
test_the_sqlite_store_answers_as_the_memory_model_does = StoresAgree.TestCase


@given(recording=recordings())
def test_a_record_survives_being_written_down(recording: RecordDelegation) -> None:
    assert record_of(row_of(recording.record)) == recording.record


@given(value=JSON)
def test_json_survives_being_written_down(value: Any) -> None:
    assert decoded(encoded(value)) == value


@given(value=st.recursive(st.binary() | st.text(st.characters()) | st.builds(object), lambda inner: st.dictionaries(st.text(), inner)))
def test_anything_at_all_can_be_written_down(value: Any) -> None:
    decoded(encoded(value))


@given(times=st.lists(st.none() | st.floats(allow_nan=False), min_size=13, max_size=13).map(tuple))
def test_step_times_survive_exactly(times: tuple[float | None, ...]) -> None:
    assert unpacked(packed(times)) == times
