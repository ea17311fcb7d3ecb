"""Discovery of the live server of a project."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from remit.server.addresses import FILE, announce, announced, withdraw

OTHER = """
import sys
from pathlib import Path
from remit.server.addresses import announce
announce(Path(sys.argv[1]), grpc="unix:/other", http=None, token_file=None)
"""


def test_live_server_is_found_until_it_ends(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-c", OTHER, str(tmp_path)], check=True)
    assert announced(tmp_path) is None, "that process has ended"
    announce(tmp_path, grpc="unix:/ours", http=None, token_file=None)
    found = announced(tmp_path)
    assert found is not None
    assert (found.grpc, found.pid) == ("unix:/ours", os.getpid())
    withdraw(tmp_path)
    assert announced(tmp_path) is None


@pytest.mark.parametrize("written", ["", "[]", "3", "{}", '{"pid": 1}', '{"pid": 1, "pid_started": null}', "\xff"])
def test_invalid_announcement_is_ignored(tmp_path: Path, written: str) -> None:
    (tmp_path / FILE).write_text(written)
    assert announced(tmp_path) is None
