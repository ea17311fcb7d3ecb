"""For all tests: what was skipped is said at the end, with reason and count, so that a thin run never looks like a full one."""

from collections import Counter

import pytest


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    reasons = Counter(_reason(report) for report in terminalreporter.stats.get("skipped", []))
    if not reasons:
        return
    terminalreporter.section("not run", red=True)
    for reason, count in reasons.most_common():
        terminalreporter.write_line(f"{count} skipped: {reason}")


def _reason(report: pytest.TestReport | pytest.CollectReport) -> str:
    told = report.longrepr
    return told[2].removeprefix("Skipped: ") if isinstance(told, tuple) else str(told)
