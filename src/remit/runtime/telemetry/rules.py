"""Alert rules for Prometheus, made from the thresholds (`core.metrics`): `remit metrics --alert-rules` prints them.

Of counters and histograms, not of the gauges with the shares: so they hold for several servers together, across restarts, and also where
the numbers came by way of a collector. A share without a total is not a number there, and no alert. Pure.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from remit.core.metrics import ERRORS_BY_OPERATION, ERRORS_BY_TARGET, LATENCY_P99, METRICS, SUCCESS_RATE, TIMEOUT_RATE, Metric
from remit.core.states import State
from remit.runtime.telemetry.names import ENDED, LATENCY

OVER = "5m"
FOR = "5m"
PAGE = "docs/how-to/watch-remit.md"
_ENDED = ENDED.prometheus
_JUDGED = f'{_ENDED}{{state!="{State.CANCELLED}"}}'
"""Somebody's decision is neither success nor error."""
_ERRORS = f'{_ENDED}{{state!~"{State.COMPLETED}|{State.CANCELLED}"}}'
_TIMEOUTS = f'{_ENDED}{{state="{State.TIMEOUT}"}}'


def _share(part: str, by: str = "") -> str:
    grouped = f"sum by ({by})" if by else "sum"
    return f"{grouped} (rate({part}[{OVER}])) / {grouped} (rate({_JUDGED}[{OVER}]))"


EXPRESSIONS: Mapping[str, str] = {
    SUCCESS_RATE.name: f"1 - {_share(_ERRORS)}",
    LATENCY_P99.name: f"histogram_quantile(0.99, sum by (le) (rate({LATENCY.prometheus}_bucket[{OVER}])))",
    TIMEOUT_RATE.name: _share(_TIMEOUTS),
    ERRORS_BY_TARGET.name: _share(_ERRORS, "target"),
    ERRORS_BY_OPERATION.name: _share(_ERRORS, "target, operation"),
}
"""What Prometheus is asked for each metric that has a threshold."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    alert: str
    expression: str
    metric: Metric

    def lines(self) -> list[str]:
        metric = self.metric
        what = "{{ $labels.target }}" if "by (target" in self.expression else "remit"
        if "operation" in self.expression:
            what += " {{ $labels.operation }}"
        value = "{{ $value | humanizeDuration }}" if metric.unit == "s" else "{{ $value | humanizePercentage }}"
        return [
            f"      - alert: {self.alert}",
            f"        expr: {_quoted(self.expression)}",
            f"        for: {FOR}",
            "        labels:",
            "          severity: warning",
            f"          metric: {metric.name}",
            "        annotations:",
            f"          summary: {_quoted(f'{what}: {metric.name} is {value} ({limit_of(metric)})')}",
            f"          description: {_quoted(f'{metric.words[:1].upper()}{metric.words[1:]}. What to do: {PAGE}')}",
        ]


def rules() -> list[Rule]:
    found = []
    for metric in METRICS:
        limit, sign = (metric.below, "<") if metric.below is not None else (metric.above, ">")
        if limit is not None:
            name = "".join(part.capitalize() for part in metric.name.removeprefix("delegation.").replace(".", "_").split("_"))
            found.append(Rule(alert=f"RemitDelegation{name}", expression=f"{EXPRESSIONS[metric.name]} {sign} {limit:g}", metric=metric))
    return found


def limit_of(metric: Metric) -> str:
    words, limit = ("below", metric.below) if metric.below is not None else ("above", metric.above)
    assert limit is not None
    return f"alert {words} {limit:g} s" if metric.unit == "s" else f"alert {words} {100 * limit:g} %"


def as_yaml() -> str:
    """A file for `rule_files`."""
    lines = [
        "# Made by `remit metrics --alert-rules`; the thresholds are those of `remit metrics`.",
        "groups:",
        "  - name: remit",
        "    rules:",
    ]
    return "\n".join([*lines, *(line for rule in rules() for line in rule.lines())]) + "\n"


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
