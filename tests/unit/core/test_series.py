"""The metrics over time, and how exact percentiles are."""

import math
from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from remit.core.metrics import LATENCY_P99, PLAIN_SIGNS, SIGNS, SUCCESS_RATE, TOTAL, Tally, series_of, sparkline
from remit.core.states import State

SECONDS = st.floats(min_value=1e-3, max_value=500_000.0)


def exact(values: Sequence[float], share: float) -> float:
    """By the nearest rank."""
    return sorted(values)[max(1, math.ceil(share * len(values))) - 1]


@given(st.lists(SECONDS, max_size=60), st.lists(SECONDS, max_size=60))
def test_what_is_merged_is_as_if_it_had_been_one(first: list[float], second: list[float]) -> None:
    merged, whole, other = Tally(), Tally(), Tally()
    for tally, values in ((merged, first), (other, second), (whole, [*first, *second])):
        for value in values:
            tally.add("a", State.COMPLETED, value, 1, 0.0)
    merged.merge(other)
    assert (merged.states, merged.tokens) == (whole.states, whole.tokens)
    assert [merged.latencies.percentile(share) for share in (0.5, 0.99)] == [whole.latencies.percentile(share) for share in (0.5, 0.99)]


def test_each_interval_has_its_own_figures_and_none_where_nothing_ended() -> None:
    asked: list[tuple[float, State]] = [(1.0, State.COMPLETED), (1.5, State.FAILED), (9.0, State.COMPLETED), (10.0, State.COMPLETED)]

    def tally(since: float, until: float) -> Tally:
        summed = Tally()
        for at, state in asked:
            if since <= at < until:
                summed.add("a", state, 2.0, 0, 0.0)
        return summed

    series = series_of(tally, 0.0, 10.0, intervals=5)
    assert series.values[TOTAL.name] == [2, 0, 0, 0, 2]  # also what came at this very moment
    assert series.values[SUCCESS_RATE.name] == [0.5, None, None, None, 1.0]
    assert series.values[LATENCY_P99.name][1] is None
    assert series.to_dict()["interval"] == 2.0


def test_a_line_has_one_sign_for_each_value() -> None:
    assert sparkline([0, 1, 2, 3, 4, 5, 6, 7], TOTAL) == SIGNS
    assert sparkline([0, None, 7], TOTAL, signs=PLAIN_SIGNS) == "_ #"
    assert sparkline([None, None]) == "  "
    assert sparkline([1.0, 0.999, 1.0], SUCCESS_RATE) == "███"  # a ripple, not a storm
    assert sparkline([0.0, 0.0], TOTAL) == "▁▁"
