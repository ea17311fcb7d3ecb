"""The table of signal names equals its documentation."""

import re
from pathlib import Path

from remit import LifecycleKind
from remit.runtime.telemetry.metrics import INSTRUMENTS, PRINCIPALS
from remit.runtime.telemetry.traces import Attribute, Span

REFERENCE = Path(__file__).parents[3] / "docs" / "reference"


def rows(page: str, heading: str) -> list[list[str]]:
    part = (REFERENCE / page).read_text().partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    lines = [line for line in part.splitlines() if line.startswith("| `")]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]


def test_every_name_is_documented_and_no_other() -> None:
    assert [row[0].strip("`") for row in rows("signals.md", "Spans")][1:] == list(Span)
    assert [row[0].strip("`") for row in rows("signals.md", "Attributes")] == list(Attribute)
    found = [(row[0], row[2], tuple(re.findall(r"`([\w.]+)`", row[3])), row[4]) for row in rows("signals.md", "Metrics")]
    assert found == [(f"`{one.name}`", one.kind, one.labels, one.words) for one in INSTRUMENTS]
    text = (REFERENCE / "signals.md").read_text()
    assert all(f"`{kind}`" in text for kind in PRINCIPALS)


def test_every_lifecycle_event_is_documented() -> None:
    assert [row[0].strip("`") for row in rows("events.md", "Lifecycle events")] == list(LifecycleKind)
