"""Set-up of all tests: a clean environment, and a summary of skipped tests with reason and count."""

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
from hypothesis import HealthCheck, Phase, settings

from remit.core import redaction
from support.lab import is_lab

ALONE = (
    "chaos/test_attacks.py",
    "chaos/test_hostile_processes.py",
    "chaos/test_merge_queue.py",
    "integration/test_process_agents_hostile.py",
)
"""Timing-sensitive: these run one at a time after the others (`make test`)."""
SHORT = ("properties/", "security/", "unit/")

os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")  # no forked child uses gRPC

# Without the lab a failing example is not shrunk: with a slow one that takes longer than the watchdog allows, and ends the whole run.
PHASES = tuple(Phase) if is_lab() else (Phase.explicit, Phase.reuse, Phase.generate)
settings.register_profile("tests", max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow], phases=PHASES)
settings.load_profile("tests")

pytest_plugins = ("watchdog", "support.server_fixtures")

os.environ["REMIT_TRUST"] = "1"  # tests about trust remove it (`untrusted`)
_state = tempfile.TemporaryDirectory(prefix="remit-tests-state-", ignore_cleanup_errors=True)
os.environ["XDG_STATE_HOME"] = _state.name  # for fixtures with a wider scope; each test has its own

if threading.current_thread() is threading.main_thread():  # a shell ignores SIGINT for background jobs, and children inherit that
    signal.signal(signal.SIGINT, signal.default_int_handler)
pytest.register_assert_rewrite("documented_commands", "documents", "support.apis.checks")  # shows values in failed assertions

for _name in [name for name in os.environ if name.startswith("REMIT_") and name not in ("REMIT_TOOLS", "REMIT_TRUST")]:
    del os.environ[_name]  # tests started by an agent do not belong to its tree


@pytest.fixture(autouse=True)
def _forget_secrets() -> None:
    """Secrets of one test are redacted for a while: the next test starts without them."""
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
    """Cached descriptions of agent files, shared by the tests of a run."""
    os.environ["XDG_CACHE_HOME"] = str(tmp_path_factory.mktemp("cache"))


@pytest.fixture
def untrusted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Projects need approval, as they do for users."""
    monkeypatch.delenv("REMIT_TRUST")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """With `-m alone`, import no other file: many load libraries that take seconds."""
    if config.option.markexpr != "alone" or collection_path.suffix != ".py":
        return None
    return None if collection_path.relative_to(Path(__file__).parent).as_posix() in ALONE else True


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Exclude the half a million objects of libraries from later garbage collections."""
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
    # Short files last, so that no worker ends with a long one; long files in a mixed order.
    items.sort(key=lambda item: (names[item.path].startswith(SHORT), crc32(names[item.path].encode())))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    reasons = Counter(_reason(report) for report in terminalreporter.stats.get("skipped", []))
    if not reasons:
        return
    terminalreporter.section("not run", red=True)
    for reason, count in reasons.most_common():
        terminalreporter.write_line(f"{count} skipped: {reason}")


def _reason(report: pytest.TestReport | pytest.CollectReport) -> str:
    text = report.longrepr
    return text[2].removeprefix("Skipped: ") if isinstance(text, tuple) else str(text)
