"""Metrics: values, alerts and percentiles."""

from remit import State
from remit.core.metrics import METRICS, Tally, metrics_of


def tally(**counts: int) -> Tally:
    made = Tally()
    for name, count in counts.items():
        agent, _, state = name.rpartition("__")
        for _ in range(count):
            made.add(agent.replace("_", "."), State(state), 1.0, 10, 0.5)
    return made


def test_percentiles_are_exact() -> None:
    made = Tally()
    for seconds in range(1, 101):
        made.add("a", State.COMPLETED, float(seconds), 0, 0.0)
    made.add("a", State.CANCELLED, 500.0, 0, 0.0)
    assert metrics_of(made, since=None, until=0.0).latency == {"p50": 50.0, "p95": 95.0, "p99": 99.0, "max": 100.0}


def test_metric_names_and_thresholds() -> None:
    assert {one.name: (one.below, one.above) for one in METRICS} == {
        "delegation.total": (None, None),
        "delegation.success_rate": (0.95, None),
        "delegation.latency.p99": (None, 30.0),
        "delegation.timeout_rate": (None, 0.05),
        "delegation.errors.by_target": (None, 0.10),
        "delegation.errors.by_operation": (None, 0.10),
    }


def test_rates_exclude_running_and_cancelled_delegations() -> None:
    found = metrics_of(tally(a__completed=8, a__timeout=1, a__refused=1, a__cancelled=5, a__running=3), since=None, until=0.0)
    assert (found.total, found.live, found.cancelled) == (18, 3, 5)
    assert (found.success.rate, found.timeout.rate) == (0.8, 0.1)
    assert (found.tokens, found.cost) == (180, 9.0)


def test_errors_are_counted_by_target_and_operation() -> None:
    found = metrics_of(tally(w_read__completed=19, w_read__failed=1, w_list__blocked=1, plain__partial=1), since=None, until=0.0)
    assert {name: (one.count, one.total) for name, one in found.errors_by_target.items()} == {"w": (2, 21), "plain": (1, 1)}
    assert {name: (one.count, one.total) for name, one in found.errors_by_operation.items()} == {
        "w.read": (1, 20), "w.list": (1, 1), "plain": (1, 1),
    }  # fmt: skip
    alarming = {(one.metric.name, one.of) for one in found.alerts()}
    assert ("delegation.errors.by_operation", "w.list") in alarming
    assert ("delegation.errors.by_operation", "w.read") not in alarming
    assert ("delegation.success_rate", None) in alarming
