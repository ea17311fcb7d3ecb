"""Clients of a remit that serves: the delegations of the task service, by gRPC. Needs no project and no `Remit` of its own.

Needs `pip install "remit[grpc]"`; what is imported from here imports it.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from remit.client.configs import CoderConfig, DelegationConfig, ResearcherConfig, WorkerConfig
    from remit.client.delegating import CoderDelegation, Delegation, ResearcherDelegation, WorkerDelegation
    from remit.client.discovering import Found, discover

_HOMES = {
    "CoderConfig": "configs", "DelegationConfig": "configs", "ResearcherConfig": "configs", "WorkerConfig": "configs",
    "CoderDelegation": "delegating", "Delegation": "delegating", "ResearcherDelegation": "delegating", "WorkerDelegation": "delegating",
    "Found": "discovering", "discover": "discovering",
}  # fmt: skip

__all__ = [
    "CoderConfig", "CoderDelegation", "Delegation", "DelegationConfig", "Found", "ResearcherConfig", "ResearcherDelegation", "WorkerConfig",
    "WorkerDelegation", "discover",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{home}"), name)
