"""The suite itself cannot hang. `pytest-timeout` ends a test by raising in it, which does nothing where the interpreter does not run
(a lock inside a library) or where somebody catches it (hypothesis, which tries the example again). A thread of the C library, which needs
nobody's lock, then prints where every thread stands and ends the process: with several at a time the test counts as failed and another
process goes on with the rest; alone the run fails."""

import faulthandler
import os
from collections.abc import Iterator

import pytest

from support.lab import is_lab

OF_A_TEST = 240.0 if not is_lab() else 7200.0
"""More than any `timeout` of a test."""
OF_A_RUN = 3000.0
AT_THE_END = 120.0
STDERR = pytest.StashKey[int]()


def pytest_configure(config: pytest.Config) -> None:
    config.stash[STDERR] = os.dup(2)  # the real one: it is not captured here
    _within(OF_A_RUN, config)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    _within(OF_A_TEST, item.config)
    try:
        return (yield)
    finally:
        _within(OF_A_RUN, item.config)


def pytest_sessionfinish(session: pytest.Session) -> None:
    _within(AT_THE_END, session.config)


def _within(seconds: float, config: pytest.Config) -> None:
    faulthandler.dump_traceback_later(seconds, exit=True, file=config.stash[STDERR])
