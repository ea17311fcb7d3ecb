"""The policy: rules in Cedar, modes, and the audit log (S5.10). The flow asks it by `core.policy`; `open_policy` makes it."""

from remit.policy.opening import open_policy

__all__ = ["open_policy"]
