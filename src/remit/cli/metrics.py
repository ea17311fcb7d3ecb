"""`remit metrics` and `remit ledger`: figures of a period, and the error ledger. Read only."""

import time
from collections.abc import Mapping
from typing import Annotated, Any

from rich.text import Text
from typer import Option

from remit.cli.arguments import parse_time
from remit.cli.exits import Exit
from remit.cli.project import NOTHING_YET, Project
from remit.cli.render import at_the_prompt, count, duration, one_line, painted, put, say, say_aside, say_table, spent
from remit.core.metrics import (
    AVAILABILITY,
    ERRORS_BY_OPERATION,
    ERRORS_BY_TARGET,
    FAILED_STARTS,
    LATENCY_P99,
    SUCCESS_RATE,
    TIMEOUT_RATE,
    TOTAL,
    Metric,
    Metrics,
    Share,
    Tally,
    metrics_of,
)
from remit.runtime.error_ledger import Entry, ErrorLedger

FULL = 20
"""Number of targets and operations listed, those with most errors first."""


def metrics(
    project: Project,
    since: Annotated[str | None, Option(help="30m, 2h, 1d ago, or an ISO time. Default: everything on record.")] = None,
) -> Exit:
    """Show totals, rates and latency of delegations, errors by target and operation, and alerts.

    Exits 0 also when there are alerts."""
    now = time.time()
    begin = parse_time(since, "--since", now)
    with project.history() as store:
        found = metrics_of(Tally() if store is None else store.tally(begin, None), since=begin, until=now)
    empty = NOTHING_YET if store is None else "Nothing was delegated in that time."
    return project.answer(found.to_dict, (lambda: _print_metrics(found)) if found.total else empty)


def _print_metrics(found: Metrics) -> None:
    rows = [
        _row(TOTAL.name, f"{found.total:,}", TOTAL, None),
        _row(SUCCESS_RATE.name, _share(found.success), SUCCESS_RATE, found.success.rate),
        _row(TIMEOUT_RATE.name, _share(found.timeout), TIMEOUT_RATE, found.timeout.rate),
    ]
    for name, value in found.latency.items():
        metric = LATENCY_P99 if name == "p99" else None
        rows.append(_row(f"delegation.latency.{name}", "-" if value is None else duration(value), metric, value))
    if found.tokens or found.cost:
        rows.append(_row("delegation.tokens", spent(found.tokens, found.cost)))
    for metric, shares in ((ERRORS_BY_TARGET, found.errors_by_target), (ERRORS_BY_OPERATION, found.errors_by_operation)):
        worst = sorted(shares.items(), key=lambda item: (-(item[1].rate or 0.0), -item[1].total, item[0]))
        rows += [_row(f"{metric.name} {name}", _share(share), metric, share.rate) for name, share in worst[:FULL]]
    for name, times in _most(found.failed_starts):
        rows.append(_row(f"{FAILED_STARTS.name} {name}", f"{times:,}"))
        rows.append(_row(f"{AVAILABILITY.name} {name}", _share(found.availability[name])))
    rows += [_row(f"delegation.tokens.by_operation {name}", f"{tokens:,}") for name, tokens in _most(found.tokens_by_operation)]
    say_table(rows, shrinking=("metric",))
    alerts = found.alerts()
    say(f"\n! {count(len(alerts), 'alert')}." if alerts else "\nNo alert.")


def _row(name: str, value: str, metric: Metric | None = None, rate: float | None = None) -> dict[str, Any]:
    is_alarming = metric is not None and metric.is_alarming(rate)
    marked = Text.assemble("! " if is_alarming else "  ", value, style="red bold" if is_alarming else "")
    return {"metric": name, "value": marked, "alert": _limit(metric)}


def _most(numbers: Mapping[str, int]) -> list[tuple[str, int]]:
    return sorted(numbers.items(), key=lambda item: (-item[1], item[0]))[:FULL]


def _share(share: Share) -> str:
    return "-" if share.rate is None else f"{100 * share.rate:.1f} % ({share.count:,} of {share.total:,})"


def _limit(metric: Metric | None) -> str:
    if metric is None or (metric.below is None and metric.above is None):
        return ""
    sign, limit = ("<", metric.below) if metric.below is not None else (">", metric.above)
    assert limit is not None
    return f"{sign} {limit:g} s" if metric.unit == "s" else f"{sign} {100 * limit:g} %"


def ledger(
    project: Project,
    type_: Annotated[str | None, Option("--type", metavar="TYPE", help="Only errors of this type (or with this code).")] = None,
) -> Exit:
    """List recorded errors, the latest first, with how often each occurred and what to do."""
    errors = ErrorLedger(project.folder / "errors.json")
    entries = [entry for entry in errors.entries() if type_ is None or type_ in (entry.type, entry.code)]
    if errors.set_aside_path is not None:
        say_aside(f"The ledger was damaged: it is kept as {errors.set_aside_path.name} beside the new one.")
    empty = "The error ledger has no such error."
    return project.answer({"errors": [entry.to_dict() for entry in entries]}, (lambda: _print_ledger(entries)) if entries else empty)


def _print_ledger(entries: list[Entry]) -> None:
    """Code and frequency on one line, then the message, then the advice."""
    for entry in entries:
        print(
            painted(one_line(entry.code or entry.type), "bold red"),
            painted(f" {one_line(entry.origin or '-')}", "bold"),
            painted(one_line(f" {count(entry.recurrence_count, 'time')}, last {entry.last_seen}, {entry.fix_status}"), "dim"),
        )
        put(one_line(entry.message, 300), "  ")
        if advice := entry.context.get("recommendation"):
            put(one_line(at_the_prompt(str(advice)), 200), "  → ", style="yellow", label_style="yellow")
