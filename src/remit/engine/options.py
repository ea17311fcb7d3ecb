"""What an embedded engine is told once, when it is made."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineOptions:
    slots_total: int = 256
    queue_limit: int = 10_000
    ageing_seconds: float = 30.0
    kill_grace_seconds: float = 0.25
    block_limit_seconds: float = 2.0
    chunk_limit_bytes: int = 4 * 1024 * 1024
    project: str = "remit"
    """Names the project in the marks of its processes."""
    accept_env: tuple[str, ...] = ()
    """Variables that acceptance commands get beside the usual ones."""
    commit_in_loop: bool = True
    """False with durability "power": each group costs an fsync, which the loop must not wait for."""
