"""One check decides whether a delegation looks stuck, for the CLI and for MCP."""

from dataclasses import replace

import pytest

from remit import Record, State
from remit.system.liveness import LATE_SECONDS, QUIET_SECONDS, Stuck, stuck
from remit.testing.store_suite import record

NOW = 1_700_000_100.0
RUNNING = record(1, owner="alive", created_at=NOW - 500, timeout_seconds=1000, deadline_at=NOW + 500)


@pytest.mark.parametrize(
    ("record", "heard_at", "found"),
    [
        (RUNNING, NOW - 1, None),
        (RUNNING, NOW - QUIET_SECONDS - 1, Stuck.QUIET),
        (replace(RUNNING, timeout_seconds=10), NOW - 6, Stuck.QUIET),
        (replace(RUNNING, state=State.QUEUED), NOW - QUIET_SECONDS - 1, None),
        (replace(RUNNING, deadline_at=NOW - LATE_SECONDS - 1), NOW, Stuck.LATE),
        (replace(RUNNING, deadline_at=NOW - LATE_SECONDS + 1), NOW, None),
        (replace(RUNNING, owner="dead"), NOW, Stuck.GONE),
        (replace(RUNNING, owner="dead", state=State.COMPLETED), NOW - 10_000, None),
    ],
)
def test_delegation_is_stuck_if_its_owner_is_dead_or_it_is_late_or_silent(record: Record, heard_at: float, found: Stuck | None) -> None:
    assert stuck(record, NOW, heard_at, {"alive"}) is found
