"""Trace and span ids are derived from session ids."""

from remit import CallerInfo, Deadline, Delegation, Priority
from remit.core.delegation import Lineage
from remit.core.ids import parent_span_of, parse_traceparent, span_of, traceparent_of, tree_span_of

GIVEN = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def _delegation(lineage: Lineage, caller_info: CallerInfo | None = None) -> Delegation:
    deadline = Deadline(timeout_seconds=60.0, soft_at=54.0, hard_at=60.0)
    return Delegation(lineage, lineage.path[-1], {}, "orchestrator", Priority.NORMAL, deadline, 1.0, caller_info=caller_info)


def _root() -> Lineage:
    return Lineage.root("sess_1700000000_aaaaaa", "planner")


def test_every_process_computes_the_same_ids_for_one_tree() -> None:
    root = _root()
    child = root.child("sess_1700000001_bbbbbb", "reviewer")
    first, second = span_of(_delegation(root)), span_of(_delegation(child))
    assert first == span_of(_delegation(root))
    assert first.trace_id == second.trace_id
    assert first.span_id != second.span_id
    assert parent_span_of(_delegation(child)) == first
    assert parent_span_of(_delegation(root)) == tree_span_of(root.root_id, None)
    assert parse_traceparent(traceparent_of(_delegation(child))) == second


def test_tree_continues_the_trace_of_its_caller() -> None:
    root = _root()
    of = span_of(_delegation(root, CallerInfo("alice", "http", traceparent=GIVEN)))
    assert of.trace_id == "0af7651916cd43dd8448eb211c80319c"
    assert of.is_sampled
    unsampled = span_of(_delegation(root, CallerInfo("alice", "http", traceparent=GIVEN[:-1] + "0")))
    assert not unsampled.is_sampled
    assert str(unsampled).endswith("-00")


def test_invalid_traceparent_is_ignored() -> None:
    zero, span = "0" * 32, "b7ad6b7169203331"
    wrong = [
        None, 7, b"x", "", "00", GIVEN + "-x", GIVEN.upper(), GIVEN + "\n", f"00-{zero}-{span}-01", f"00-{'a' * 32}-{'0' * 16}-01",
        "ff" + GIVEN[2:], " " + GIVEN, GIVEN.replace("0af", "0aٳ"), GIVEN + "-" + "x" * 10_000,
    ]  # fmt: skip
    assert [parse_traceparent(text) for text in wrong] == [None] * len(wrong)
    assert parse_traceparent(GIVEN) is not None
    assert str(parse_traceparent(GIVEN)) == GIVEN
    assert str(parse_traceparent("cc" + GIVEN[2:] + "-what-the-future-adds")) == GIVEN
    assert str(parse_traceparent(GIVEN[:-2] + "ff")) == GIVEN[:-2] + "03"
