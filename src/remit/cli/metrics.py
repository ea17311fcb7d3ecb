"""`remit metrics`: how delegation went, in numbers, with alerts (S5.9). Reads only; other processes' delegations are counted too."""

from typing import TYPE_CHECKING, Annotated

import typer

from remit.cli.exits import Exit
from remit.cli.options import Json, Root

if TYPE_CHECKING:
    from collections.abc import Mapping

    from remit.core.metrics import Metric, Metrics, Share

FULL = 20
"""So many targets and operations are listed; those with most errors first."""


def metrics(
    since: Annotated[
        str | None, typer.Option(help="Like 30m, 2h, 1d, or an ISO time; all on record unless given.", show_default=False)
    ] = None,
    root: Root = None,
    as_json: Json = False,
) -> Exit:
    """Show totals, rates and latency of delegations, errors by target and operation, and which of them are alarming.

    Exits 0 also when there are alerts."""
    import time

    from remit.cli.output import say, say_json
    from remit.cli.project import NOTHING_YET, find_root, open_record
    from remit.cli.values import moment
    from remit.core.metrics import Tally, metrics_of

    now = time.time()
    begin = moment(since, "--since", now)
    with open_record(find_root(root)) as store:
        tally = Tally() if store is None else store.tally(begin)
    found = metrics_of(tally, since=begin, until=now)
    if as_json:
        say_json(found.to_dict())
    elif store is None:
        say(NOTHING_YET)
    elif not found.total:
        say("Nothing was delegated in that time.")
    else:
        _print(found)
    return Exit.OK


def _print(found: "Metrics") -> None:
    from rich.text import Text

    from remit.cli.output import console, say
    from remit.cli.tables import table
    from remit.cli.words import count
    from remit.core.metrics import ERRORS_BY_OPERATION, ERRORS_BY_TARGET

    shown = table("metric", "value", "alert", "", folding="")
    for name, value, metric in _rows(found):
        is_alarming = metric is not None and metric.is_alarming(_number(found, metric))
        mark = Text("! " if is_alarming else "  ", style="red bold") + Text(value, style="red" if is_alarming else "")
        shown.add_row(name, mark, _limit(metric), "" if metric is None else metric.words)
    console().print(shown)
    for metric, shares in ((ERRORS_BY_TARGET, found.errors_by_target), (ERRORS_BY_OPERATION, found.errors_by_operation)):
        if shares:
            say()
            _print_shares(metric, shares)
    alerts = found.alerts()
    say()
    say(f"! {count(len(alerts), 'alert')}." if alerts else "No alert.")


def _rows(found: "Metrics") -> "list[tuple[str, str, Metric | None]]":
    from remit.cli.words import duration, spent
    from remit.core.metrics import LATENCY_P99, SUCCESS_RATE, TIMEOUT_RATE, TOTAL

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


def _number(found: "Metrics", metric: "Metric") -> float | None:
    from remit.core.metrics import LATENCY_P99, SUCCESS_RATE, TIMEOUT_RATE

    return {SUCCESS_RATE.name: found.success.rate, LATENCY_P99.name: found.latency["p99"], TIMEOUT_RATE.name: found.timeout.rate}.get(
        metric.name
    )


def _print_shares(metric: "Metric", shares: "Mapping[str, Share]") -> None:
    from rich.text import Text

    from remit.cli.output import console, say
    from remit.cli.tables import table
    from remit.cli.words import printable

    worst_first = sorted(shares.items(), key=lambda item: (-(item[1].rate or 0.0), -item[1].total, item[0]))
    shown = table(metric.name, "errors", "of", "share")
    for name, share in worst_first[:FULL]:
        is_alarming = metric.is_alarming(share.rate)
        rate = Text("! " if is_alarming else "  ", style="red bold") + Text(_percent(share.rate), style="red" if is_alarming else "")
        shown.add_row(printable(name), f"{share.count:,}", f"{share.total:,}", rate)
    console().print(shown)
    if len(shares) > FULL:
        say(f"and {len(shares) - FULL:,} more, with fewer errors: --json has them all.")


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
