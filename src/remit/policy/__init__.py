"""The policy: Cedar rules, modes, the audit log. `runtime.authorize` asks it through `core.policy`; `engine.open_policy` makes it."""
