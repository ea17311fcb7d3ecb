"""Figures: measured value, promised value and verdict, and the table of them. Measures nothing itself."""

import os
import platform
import sqlite3
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    section: str
    what: str
    measured: str
    target: str = ""
    is_met: bool | None = None
    """None: no promise exists; the figure is for comparison."""

    @property
    def verdict(self) -> str:
        return {True: "met", False: "**missed**", None: ""}[self.is_met]


def percentile(values: Sequence[float], share: float) -> float:
    """The value that `share` of the values do not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]


def median(values: Sequence[float]) -> float:
    ordered = sorted(values)
    middle = len(ordered) // 2
    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2


def microseconds(seconds: float) -> str:
    return f"{seconds * 1e6:,.0f} µs"


def milliseconds(seconds: float) -> str:
    return f"{seconds * 1e3:,.1f} ms"


def per_second(rate: float) -> str:
    return f"{rate:,.0f} /s"


def table(figures: Iterable[Figure]) -> str:
    rows = [("", "what", "measured", "target", "verdict")]
    rows += [(f.section, f.what, f.measured, f.target, f.verdict) for f in figures]
    widths = [max(len(row[column]) for row in rows) for column in range(5)]
    lines = ["| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) + " |" for row in rows]
    lines.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    return "\n".join(lines)


def report(figures: Sequence[Figure], *, title: str, seconds: float) -> str:
    missed = [f for f in figures if f.is_met is False]
    said = f"{len(missed)} missed" if missed else "all met"
    return (
        f"# {title}\n\n"
        "Written by `python -m bench`; do not edit. Ours and the floors were measured in turns in the same run; each figure is\n"
        "the median over the rounds, a ratio the median of the ratios of each round.\n\n"
        f"{time.strftime('%Y-%m-%d', time.gmtime())} · {os.cpu_count()} cores, {platform.system()} {platform.machine()} · "
        f"Python {platform.python_version()}, SQLite {sqlite3.sqlite_version} · took {seconds:.0f} s · "
        f"{sum(f.is_met is not None for f in figures)} promises, {said}\n\n{table(figures)}\n"
    )
