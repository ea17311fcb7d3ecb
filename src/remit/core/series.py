"""The metrics over time: one value for each interval, and how it is drawn as a line of signs. Pure.

Each interval is summed up for itself and forgotten but for its figures: the whole needs no more memory than one of them. Used by
`remit metrics`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from remit.core.metrics import LATENCY_P99, SUCCESS_RATE, TIMEOUT_RATE, TOTAL, Metric, Tally, metrics_of

INTERVALS = 24
SIGNS = "▁▂▃▄▅▆▇█"
PLAIN_SIGNS = "_.-:=+*#"
"""For a terminal that shows nothing else."""
_EMPTY = " "
_SCALES = {SUCCESS_RATE.name: (0.9, 1.0), TIMEOUT_RATE.name: (0.0, 0.1)}
"""What the line spans at least: nobody takes a ripple of a percent for a storm."""

Values = Sequence[float | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    begin: float
    """Wall clock, of the first interval."""
    interval_seconds: float
    values: Mapping[str, Values]
    """By the name of the metric, oldest first; None: nothing ended then, so there is no share and no latency."""

    def to_dict(self) -> dict[str, Any]:
        return {"begin": self.begin, "interval": self.interval_seconds, **{name: list(values) for name, values in self.values.items()}}


def series_of(tally: Callable[[float, float], Tally], begin: float, end: float, intervals: int = INTERVALS) -> Series:
    """`tally`: of what was asked for from one moment until before another."""
    seconds = max(end - begin, 1e-3) / intervals
    bounds = [begin + seconds * place for place in range(intervals)] + [end + 1e-6]
    values: dict[str, list[float | None]] = {metric.name: [] for metric in (TOTAL, SUCCESS_RATE, TIMEOUT_RATE, LATENCY_P99)}
    for since, until in pairwise(bounds):
        found = metrics_of(tally(since, until), since=since, until=until)
        for name, value in (
            (TOTAL.name, found.total),
            (SUCCESS_RATE.name, found.success.rate),
            (TIMEOUT_RATE.name, found.timeout.rate),
            (LATENCY_P99.name, found.latency["p99"]),
        ):
            values[name].append(value)
    return Series(begin=begin, interval_seconds=seconds, values=values)


def sparkline(values: Values, metric: Metric | None = None, *, signs: str = SIGNS) -> str:
    """One sign for each value; a blank where there is none."""
    known = [value for value in values if value is not None]
    if not known:
        return _EMPTY * len(values)
    lowest, highest = _SCALES.get(metric.name if metric is not None else "", (0.0, 0.0))
    lowest, highest = min(lowest, *known), max(highest, *known)
    return "".join(_EMPTY if value is None else _sign(value, lowest, highest, signs) for value in values)


def _sign(value: float, lowest: float, highest: float, signs: str) -> str:
    share = (value - lowest) / (highest - lowest) if highest > lowest else 0.0
    return signs[min(len(signs) - 1, int(share * len(signs)))]
