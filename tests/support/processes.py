"""Processes of this machine as tests look for them: living, marked by a delegation, below another."""

from remit.system.processes import (
    MARK,
    all_pids,
    children,
    descendants,
    is_alive,
    look,
    mark_of,
    marked,
    marker,
    pid_space,
    process_start,
)

__all__ = [
    "MARK", "all_pids", "children", "descendants", "is_alive", "look", "mark_of", "marked", "marker", "pid_space", "process_start",
]  # fmt: skip
