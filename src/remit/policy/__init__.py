"""The policy of a project: rules in Cedar, and the audit log of every decision."""
