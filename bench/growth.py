"""Growth: cost of a delegation with a long history. The same workloads run with histories of different lengths.

The history is written by SQL into the real schema, as if earlier runs had left it: copies of a real delegation, spread over
several agents, trees, tasks and keys, all settled.
"""

import contextlib
import sqlite3
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.agents import noop
from bench.figures import Figure, median, microseconds, milliseconds, per_second, percentile
from bench.sizes import Sizes
from bench.speed import flood_rate, timed_sequence
from remit import Remit
from remit.stores.rows import COLUMNS

TARGET = 1.20
_IN_FLIGHT = 100
_PAST_SECONDS = 90 * 24 * 3600

_FILL = f"""
WITH RECURSIVE numbers (n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM numbers WHERE n + 1 < :count),
ids AS (
    SELECT n, :since + n * :step AS at,
           printf('sess_%d_%06x', CAST(:since + n * :step AS INTEGER), n) AS session_id,
           printf('sess_%d_%06x', CAST(:since + (n - n % 5) * :step AS INTEGER), n - n % 5) AS root_id
    FROM numbers
)
INSERT INTO delegations ({COLUMNS})
SELECT session_id, root_id, CASE WHEN n % 5 THEN root_id END,
       CASE WHEN n % 2 THEN 'noop' ELSE 'agent' || (n % 20) END,
       CASE WHEN n % 50 THEN 'completed' ELSE 'timeout' END,
       'earlier', at, at, at + 0.1,
       CASE WHEN n % 100 = 0 THEN 'key-' || n END,
       CASE WHEN n % 10 = 0 THEN n % 1000 END,
       1, 0, 0.0, 0, step_times, context, replace(result, :template, session_id),
       CASE WHEN n / 5 % 4 = 0 THEN 'token:ci' END, CASE WHEN n / 5 % 8 = 0 THEN 'talk-' || (n / 5 % 80) END,
       NULL, 0
FROM ids, (SELECT step_times, context, result FROM delegations WHERE session_id = :template)
"""


@dataclass(slots=True)
class _Shown:
    rows: int
    remit: Remit
    opened_in: float
    middle: list[float] = field(default_factory=list)
    rate: list[float] = field(default_factory=list)


async def measure(sizes: Sizes, wanted: frozenset[str]) -> list[Figure]:
    with tempfile.TemporaryDirectory(prefix="remit-bench-") as folder:
        async with contextlib.AsyncExitStack() as stack:
            shown = [await _opened(stack, Path(folder), rows) for rows in sizes.history]
            for number in range(sizes.growth_rounds + 1):
                for one in shown if number % 2 else reversed(shown):  # rotated: no length is always measured after the same one
                    await _one_round(one, sizes, is_warm_up=number == 0)
            asked_in = [await _history_seconds(one.remit) for one in shown]
    return [figure for one, asked in zip(shown, asked_in, strict=True) for figure in _figures(one, shown[0], asked)]


async def _opened(stack: contextlib.AsyncExitStack, folder: Path, rows: int) -> _Shown:
    root = folder / str(rows)
    root.mkdir()
    async with Remit.open(root, agents=[noop]) as remit:
        template = (await remit.delegate("noop")).session_id
    _fill(root / ".remit" / "remit.db", rows, template)
    began = time.perf_counter()
    remit = await stack.enter_async_context(Remit.open(root, agents=[noop]))
    return _Shown(rows, remit, time.perf_counter() - began)


def _fill(database: Path, rows: int, template: str) -> None:
    """Add `rows` copies of the delegation `template`."""
    since, step = time.time() - _PAST_SECONDS, (_PAST_SECONDS - 7200) / rows
    connection = sqlite3.connect(database, isolation_level=None)
    try:
        connection.execute("PRAGMA synchronous=OFF")
        connection.execute(_FILL, {"count": rows, "since": since, "step": step, "template": template})
        (filled,) = connection.execute("SELECT changes()").fetchone()
        assert filled == rows, f"{filled} rows of history instead of {rows}"
        connection.execute("UPDATE index_progress SET up_to=(SELECT max(id) FROM delegations)")
        connection.execute("PRAGMA synchronous=FULL")
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")  # flush to disk before measuring
    finally:
        connection.close()


async def _one_round(one: _Shown, sizes: Sizes, *, is_warm_up: bool) -> None:
    taken = await timed_sequence(lambda: one.remit.delegate("noop"), sizes.growth_sequential)
    rate = await flood_rate(lambda: one.remit.delegate("noop"), sizes.growth_flood, _IN_FLIGHT)
    if not is_warm_up:
        one.middle.append(percentile(taken, 0.5))
        one.rate.append(rate)


async def _history_seconds(remit: Remit) -> float:
    """Duration of the slowest typical history query."""
    slowest = 0.0
    questions: tuple[dict[str, Any], ...] = (
        {},
        {"agent": "agent4"},
        {"status": "timeout"},
        {"task_number": 10},
        {"principal": "token:ci"},
        {"conversation": "talk-8"},
    )
    for query in questions:
        began = time.perf_counter()
        assert await remit.history(**query), query  # an answer that is found, not one that is quickly empty
        slowest = max(slowest, time.perf_counter() - began)
    return slowest


def _figures(one: _Shown, shortest: _Shown, asked_seconds: float) -> list[Figure]:
    what = f"{one.rows:,} rows of history"
    slower = median([mine / base for mine, base in zip(one.middle, shortest.middle, strict=True)])
    dearer = median([base / mine for mine, base in zip(one.rate, shortest.rate, strict=True)])
    is_base = one is shortest
    compared = "" if is_base else f" ({slower:.2f} and {dearer:.2f} times the cost at {shortest.rows:,})"
    return [
        Figure(
            section="growth",
            what=f"remit beside {what} to begin with: one by one p50, and {_IN_FLIGHT} in flight",
            measured=f"{microseconds(median(one.middle))}, {per_second(median(one.rate))}{compared}",
            target="" if is_base else f"≤ {TARGET:.2f} times",
            is_met=None if is_base else max(slower, dearer) <= TARGET,
        ),
        Figure(
            section="growth",
            what=f"{what}: opening; slowest of six questions to it",
            measured=f"{milliseconds(one.opened_in)}; {milliseconds(asked_seconds)}",
        ),
    ]
