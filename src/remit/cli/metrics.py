"""`remit metrics` and `remit ledger`: figures of a period, and the error ledger. Read only."""

import time
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Annotated

from rich.text import Text
from typer import Option

from remit.cli.arguments import parse_time
from remit.cli.exits import Exit
from remit.cli.project import NOTHING_YET, Project
from remit.cli.render import (
    at_the_prompt,
    console,
    count,
    duration,
    harmless,
    one_line,
    painted,
    put,
    say,
    say_aside,
    spent,
    table,
    when,
)  # fmt: skip
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
)  # fmt: skip
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
    shown = table("metric", "value", "alert", "", folding="")
    numbers = {SUCCESS_RATE: found.success.rate, LATENCY_P99: found.latency["p99"], TIMEOUT_RATE: found.timeout.rate}
    for name, value, metric in _rows(found):
        mark = _marked(value, is_alarming=metric is not None and metric.is_alarming(numbers.get(metric)))
        shown.add_row(name, mark, _limit(metric), "" if metric is None else metric.words)
    console().print(shown)
    for metric, shares in ((ERRORS_BY_TARGET, found.errors_by_target), (ERRORS_BY_OPERATION, found.errors_by_operation)):
        if shares:
            say()
            _print_shares(metric, shares)
    _print_counts(found)
    alerts = found.alerts()
    say(f"\n! {count(len(alerts), 'alert')}." if alerts else "\nNo alert.")


def _print_counts(found: Metrics) -> None:
    """Failed starts with the availability of each agent, and tokens by operation, if there are any."""
    if found.failed_starts:
        say()
        shown = table(FAILED_STARTS.name, "times", AVAILABILITY.name)
        for name, times in sorted(found.failed_starts.items(), key=lambda item: (-item[1], item[0]))[:FULL]:
            shown.add_row(harmless(name), f"{times:,}", _share(found.availability[name]))
        console().print(shown)
    if found.tokens_by_operation:
        say()
        shown = table("delegation.tokens.by_operation", "tokens")
        for name, tokens in sorted(found.tokens_by_operation.items(), key=lambda item: (-item[1], item[0]))[:FULL]:
            shown.add_row(harmless(name), f"{tokens:,}")
        console().print(shown)


def _rows(found: "Metrics") -> "list[tuple[str, str, Metric | None]]":
    living = f", {found.live:,} of them live" if found.live else ""
    cancelled = f", {found.cancelled:,} cancelled" if found.cancelled else ""
    rows: list[tuple[str, str, Metric | None]] = [
        (TOTAL.name, f"{found.total:,}{living}{cancelled}", TOTAL),
        (SUCCESS_RATE.name, _share(found.success), SUCCESS_RATE),
        (TIMEOUT_RATE.name, _share(found.timeout), TIMEOUT_RATE),
    ]
    for name, value in found.latency.items():
        said = "-" if value is None else duration(value)
        rows.append((f"delegation.latency.{name}", said, LATENCY_P99 if name == "p99" else None))
    if found.tokens or found.cost:
        rows.append(("delegation.tokens", spent(found.tokens, found.cost), None))
    return rows


def _print_shares(metric: "Metric", shares: "Mapping[str, Share]") -> None:
    worst_first = sorted(shares.items(), key=lambda item: (-(item[1].rate or 0.0), -item[1].total, item[0]))
    shown = table(metric.name, "errors", "of", "share")
    for name, share in worst_first[:FULL]:
        is_alarming = metric.is_alarming(share.rate)
        rate = _marked(_percent(share.rate), is_alarming=is_alarming)
        shown.add_row(harmless(name), f"{share.count:,}", f"{share.total:,}", rate)
    console().print(shown)
    if len(shares) > FULL:
        say(f"and {len(shares) - FULL:,} more, with fewer errors: --json lists all.")


def _marked(value: str, *, is_alarming: bool) -> "Text":
    return Text.assemble("! " if is_alarming else "  ", value, style="red bold" if is_alarming else "")


def _share(share: "Share") -> str:
    return "-" if share.rate is None else f"{_percent(share.rate)} ({share.count:,} of {share.total:,})"


def _percent(rate: float | None) -> str:
    return "-" if rate is None else f"{100 * rate:.1f} %"


def _limit(metric: "Metric | None") -> str:
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
    empty = "The error ledger is empty." if type_ is None else f"No error of type {type_} in the ledger."
    return project.answer({"errors": [entry.to_dict() for entry in entries]}, (lambda: _print_ledger(entries)) if entries else empty)


def _print_ledger(entries: "Sequence[Entry]") -> None:
    """Code and frequency on one line, then the message, then the advice."""
    for entry in entries:
        head = painted(one_line(entry.code or entry.type), "bold red") + painted(f"  {one_line(entry.origin or '-')}", "bold")
        head += painted(f"  {count(entry.recurrence_count, 'time')}, last {_seen(entry.last_seen)}", "dim")
        fixed = painted(f"  {one_line(entry.fix_status)}", "green") if entry.fix_status != "not_addressed" else ""
        print(head + fixed)
        put(one_line(entry.message, 300), "  ")
        if advice := entry.context.get("recommendation"):
            put(one_line(at_the_prompt(str(advice)), 200), "  → ", style="yellow", label_style="yellow")


def _seen(iso_time: str) -> str:
    """Local time; an invalid time is printed unchanged."""
    try:
        return when(datetime.fromisoformat(iso_time).timestamp(), time.time())
    except (ValueError, OverflowError):
        return one_line(iso_time)
