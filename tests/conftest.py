"""For all tests: nothing of a delegation around them; what was skipped is said at the end, with reason and count, so that a thin run
never looks like a full one."""

import gc
import os
import signal
import tempfile
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from zlib import crc32

import pytest
from hypothesis import HealthCheck, settings

from remit.core import redaction
from support.lab import is_lab

ALONE = (
    "chaos/test_attacks.py",
    "chaos/test_hostile_processes.py",
    "chaos/test_merge_queue.py",
    "integration/test_process_agents_hostile.py",
)
"""Where seconds count: these run one at a time, after the others, several of which run at a time (`make test`)."""
SHORT = ("properties/", "security/", "unit/")

os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")  # of a test that forks nobody uses gRPC in the child, where it would get in the way

settings.register_profile("house", max_examples=40, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("house")

pytest_plugins = ("watchdog",)

os.environ["REMIT_TRUST"] = "1"  # tests about trust remove it (`untrusted`)
_state = tempfile.TemporaryDirectory(prefix="remit-tests-state-", ignore_cleanup_errors=True)
os.environ["XDG_STATE_HOME"] = _state.name  # for what is shared by several tests; each test has one of its own besides

if threading.current_thread() is threading.main_thread():  # started in the background, a shell leaves it ignored, and children inherit that
    signal.signal(signal.SIGINT, signal.default_int_handler)
pytest.register_assert_rewrite("framework_suite", "support.apis.checks")  # what it finds is to be seen as well as in a test

for _name in [name for name in os.environ if name.startswith("REMIT_") and name not in ("REMIT_TOOLS", "REMIT_TRUST")]:
    del os.environ[_name]  # run by an agent, the tests are no part of its tree


@pytest.fixture(autouse=True)
def _no_secret_of_the_test_before() -> None:
    """What one test passed as a password, "cancelled" say, is struck out of everything for a while: not of what the next one says."""
    redaction._recent.clear()
    redaction._refresh()


@pytest.fixture(autouse=True)
def state_home(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Approvals and other state of the user: private to each test."""
    folder = tmp_path_factory.mktemp("state")
    monkeypatch.setenv("XDG_STATE_HOME", str(folder))
    return folder


@pytest.fixture(scope="session", autouse=True)
def _cache_home(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Descriptions of agent files: shared by the tests of a run, which write the same files again and again."""
    os.environ["XDG_CACHE_HOME"] = str(tmp_path_factory.mktemp("cache"))


@pytest.fixture
def untrusted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Projects need approval, as they do for users."""
    monkeypatch.delenv("REMIT_TRUST")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Where only those are run that run alone, no other is even imported: half of the files load libraries that take seconds."""
    if config.option.markexpr != "alone" or collection_path.suffix != ".py":
        return None
    return None if collection_path.relative_to(Path(__file__).parent).as_posix() in ALONE else True


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Half a million objects of libraries, which stay: without this each full collection of garbage looks through them all."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    tests = Path(__file__).parent
    if not is_lab():
        items[:] = [item for item in items if item.get_closest_marker("lab") is None]
    names = {item.path: item.path.relative_to(tests).as_posix() for item in items}
    for item in items:
        if names[item.path] in ALONE:
            item.add_marker("alone")
    # Short files last, so that no worker is left with a long one at the end; the long ones mixed, so that those alike do not meet.
    items.sort(key=lambda item: (names[item.path].startswith(SHORT), crc32(names[item.path].encode())))


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
