"""Run Python programs to completion, each in an interpreter of its own."""

import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path


def run(
    arguments: Sequence[str], folder: Path, *, stdin: str = "", timeout: float = 60.0, env: Mapping[str, str] | None = None
) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, *arguments]
    return subprocess.run(command, cwd=folder, input=stdin, capture_output=True, text=True, timeout=timeout, check=False, env=env)
