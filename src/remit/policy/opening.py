"""Opening the policy of a project: which rules, which mode, which log. Cedar is loaded here, and only where rules are asked."""

from pathlib import Path

from remit.core.clock import Clock
from remit.core.policy import Mode, Policy
from remit.policy.audit import AuditLog


def open_policy(folder: Path, mode: str, *, owner: str, clock: Clock, given: str | Path | None = None) -> Policy:
    """Of the project whose `.remit` is `folder`; `given`: other rules, as text or as a path."""
    audit = AuditLog(folder, clock=clock.wall)
    if mode == Mode.DISABLED:
        from remit.policy.disabled import Disabled

        return Disabled(audit, owner)
    from remit.policy.project import ProjectPolicy
    from remit.policy.source import project_file, source_of

    return ProjectPolicy(project_file(folder) if given is None else source_of(given), Mode(mode), audit)
