"""From settings to the parts that `Remit` is put together of: rules, options of the engine, where errors are noted. Used by `app` alone."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from remit.agents.directory import Directory
from remit.agents.routing import Routes
from remit.core.deadline import Clock
from remit.core.delegation import Delegation
from remit.core.errors import ErrorInfo
from remit.core.policy import Policy
from remit.core.record import Owner
from remit.core.settings import Settings
from remit.engines.embedded.slots import EngineOptions
from remit.policy.engine import ProjectPolicy, open_policy
from remit.runtime.deps import Rules
from remit.runtime.error_ledger import ErrorOccurrence, LedgerWriter


def rules_of(settings: Settings) -> Rules:
    return Rules(
        limits_for=settings.limits_for,
        routing=settings.routing,
        max_depth=settings.max_depth,
        cycles_by_task=settings.cycles == "task",
        budget=settings.budget,
    )


def routed_by_agents(settings: Settings, directory: Directory) -> Settings:
    """With a routing table that follows the commands and languages that agents name, as they come and go."""
    routes = Routes(settings.routing)
    directory.when_changed(lambda: routes.follow(directory.routed_specs()))
    return replace(settings, routing=routes.table)


def options_of(settings: Settings, project: str) -> EngineOptions:
    return EngineOptions(
        slots_total=settings.slots_total,
        queue_limit=settings.queue_limit,
        ageing_seconds=settings.ageing_seconds,
        kill_grace_seconds=settings.kill_grace_seconds,
        block_limit_seconds=settings.block_limit_seconds,
        chunk_limit_bytes=settings.chunk_limit_bytes,
        project=project,
        accept_env=settings.accept_env,
        commit_in_loop=settings.durability != "power",
    )


def rules_read_again(policy: Policy) -> Sequence[str]:
    """At once; what is wrong with them. A policy of the program's own is its own affair."""
    return policy.reload() if isinstance(policy, ProjectPolicy) else ()


def policy_of(given: str | Path | Policy | None, folder: Path, settings: Settings, owner: Owner, clock: Clock) -> Policy:
    """The rules that hold: those given, else the project's, else the default."""
    if given is not None and not isinstance(given, str | Path):
        return given
    return open_policy(folder, settings.policy_mode, owner=owner.owner_id, clock=clock, given=given)


def noting(writer: LedgerWriter) -> Callable[[Delegation, Iterable[ErrorInfo], str], None]:
    """Into the ledger; but a cancellation that was asked for is no error."""

    def note(delegation: Delegation, errors: Iterable[ErrorInfo], stack_trace: str) -> None:
        for error in (error for error in errors if error.code != "CANCELLED"):
            writer.post(
                ErrorOccurrence(
                    error=error,
                    agent=delegation.agent,
                    command=delegation.command,
                    session_id=delegation.session_id,
                    task_number=delegation.task.task_number if delegation.task else None,
                    path=delegation.lineage.path,
                    root_id=delegation.lineage.root_id,
                    stack_trace=stack_trace,
                )
            )

    return note
