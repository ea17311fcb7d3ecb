"""The policy: rules in Cedar, modes, and the audit log. The flow asks it by `core.policy`; `project.open_policy` makes it."""
