"""For all tests: nothing of a delegation around them; what was skipped is said at the end, with reason and count, so that a thin run
never looks like a full one."""

import os
from collections import Counter

import pytest

for _name in [name for name in os.environ if name.startswith("REMIT_") and name != "REMIT_TOOLS"]:
    del os.environ[_name]  # run by an agent, the tests are no part of its tree


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
