"""Discovery of the servers of a project: the newest live one, then the one before."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from remit.server.discovery import FILES, announce, announced, withdraw

OTHER = """
import sys
from pathlib import Path
from remit.server.discovery import announce, withdraw
folder = Path(sys.argv[1])
announce(folder, grpc="unix:/other", http=None, token_file=None)
print("announced", flush=True)
if sys.stdin.readline() == "leave\\n":
    withdraw(folder)
"""


@pytest.mark.parametrize("is_killed", [False, True])
def test_previous_server_is_found_after_the_newest_ends(tmp_path: Path, is_killed: bool) -> None:
    announce(tmp_path, grpc="unix:/ours", http=None, token_file=None)
    other = subprocess.Popen([sys.executable, "-c", OTHER, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert other.stdin is not None
    assert other.stdout is not None
    assert other.stdout.readline() == "announced\n"
    found = announced(tmp_path)
    assert found is not None
    assert found.grpc == "unix:/other"
    if is_killed:
        other.kill()
    other.communicate("leave\n")
    found = announced(tmp_path)
    assert found is not None
    assert (found.grpc, found.pid) == ("unix:/ours", os.getpid())
    withdraw(tmp_path)
    assert announced(tmp_path) is None
    announce(tmp_path, grpc=None, http=None, token_file=None)  # removes the entry of a killed server
    assert len(list(tmp_path.glob(FILES))) == 1
    withdraw(tmp_path)


@pytest.mark.parametrize("written", ["", "[]", "3", "{}", '{"pid": 1}', '{"pid": 1, "pid_started": null}', "\xff"])
def test_invalid_announcement_is_ignored(tmp_path: Path, written: str) -> None:
    (tmp_path / "serve-1.json").write_text(written)
    assert announced(tmp_path) is None
