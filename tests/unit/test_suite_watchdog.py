"""The test suite itself cannot hang: `tests/watchdog.py`."""

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
HURRIED = "import watchdog\nwatchdog.TEST_SECONDS = 2.0\npytest_plugins = ('watchdog',)\n"


def test_hanging_test_is_ended_and_named_and_the_rest_runs(tmp_path: Path) -> None:
    (tmp_path / "test_hangs.py").write_text(HANGS)
    (tmp_path / "conftest.py").write_text(HURRIED)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    command = [sys.executable, "-m", "pytest", "-n", "1", "--timeout", "1", "-p", "no:schemathesis", "-p", "no:langsmith_plugin"]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}
    ran = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=200, check=False)
    assert ran.returncode == 1
    assert "crashed while running 'test_hangs.py::test_that_nothing_ends'" in ran.stdout
    assert "1 failed, 1 passed" in ran.stdout
    assert "in test_that_nothing_ends" in ran.stderr
