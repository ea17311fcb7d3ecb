"""The test suite cannot hang. `pytest-timeout` raises in the test, which has no effect while a library has a lock or if the test
catches it (hypothesis repeats the example). A thread of the C library then prints every stack and ends the process: with xdist the test
counts as failed and another process runs the rest."""

import faulthandler
import os
from collections.abc import Iterator

import pytest

from support.lab import is_lab

TEST_SECONDS = 240.0 if not is_lab() else 7200.0
"""Above the `timeout` of any test."""
RUN_SECONDS = 3000.0
EXIT_SECONDS = 120.0
STDERR = pytest.StashKey[int]()


def pytest_configure(config: pytest.Config) -> None:
    config.stash[STDERR] = os.dup(2)  # not captured by pytest
    _within(RUN_SECONDS, config)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    _within(TEST_SECONDS, item.config)
    try:
        return (yield)
    finally:
        _within(RUN_SECONDS, item.config)


def pytest_sessionfinish(session: pytest.Session) -> None:
    _within(EXIT_SECONDS, session.config)


def _within(seconds: float, config: pytest.Config) -> None:
    faulthandler.dump_traceback_later(seconds, exit=True, file=config.stash[STDERR])
