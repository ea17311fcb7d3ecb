"""Count processes by independent marks, so that the figures do not rely on remit's own accounting."""

import os
import secrets
from pathlib import Path

_VARIABLE = "REMIT_BENCH_MARK"


class Census:
    """Marks every process that this process starts from now on; `program` marks programs started without an environment."""

    def __init__(self) -> None:
        token = secrets.token_hex(8)
        self.program = f"86{secrets.randbelow(10**9):09}"
        """Argument for `sleep`: a number of seconds that no other process uses."""
        self._environment = f"{_VARIABLE}={token}".encode()
        os.environ[_VARIABLE] = token

    def pids(self) -> list[int]:
        """Living processes with one of the marks, without this one."""
        return [*self.with_environment(), *self.with_program()]

    def with_environment(self) -> list[int]:
        return _carrying("environ", self._environment)

    def with_program(self) -> list[int]:
        return _carrying("cmdline", self.program.encode())


def _carrying(file: str, mark: bytes) -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit() and int(name) != os.getpid() and mark in _entries(name, file)]


def _entries(pid: str, file: str) -> list[bytes]:
    try:
        return (Path("/proc") / pid / file).read_bytes().split(b"\0")
    except OSError:  # it has exited, is a zombie, or belongs to another user
        return []


def running(pids: list[int]) -> list[int]:
    """Processes that still run and are not zombies."""
    return [pid for pid in pids if _state(pid) not in ("", "Z", "X")]


def _state(pid: int) -> str:
    try:
        text = (Path("/proc") / str(pid) / "stat").read_text(errors="replace")
    except OSError:
        return ""
    return text[text.rfind(")") + 2 :][:1]
