"""The tests of a runtime that cannot hang cannot hang either: `tests/watchdog.py`."""

import os
import subprocess
import sys
from pathlib import Path

HANGS = """
import time

def test_that_nothing_ends():
    while True:
        try:
            time.sleep(60)
        except BaseException:
            pass

def test_that_comes_after():
    pass
"""
HURRIED = "import watchdog\nwatchdog.OF_A_TEST = 2.0\npytest_plugins = ('watchdog',)\n"


def test_a_test_that_catches_its_own_timeout_is_ended_named_and_the_rest_runs(tmp_path: Path) -> None:
    (tmp_path / "test_hangs.py").write_text(HANGS)
    (tmp_path / "conftest.py").write_text(HURRIED)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    command = [sys.executable, "-m", "pytest", "-n", "1", "--timeout", "1", "-p", "no:schemathesis", "-p", "no:langsmith_plugin"]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}
    ran = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert ran.returncode == 1
    assert "crashed while running 'test_hangs.py::test_that_nothing_ends'" in ran.stdout
    assert "1 failed, 1 passed" in ran.stdout
    assert "in test_that_nothing_ends" in ran.stderr
