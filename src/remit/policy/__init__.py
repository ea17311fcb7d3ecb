"""The policy: Cedar rules, modes, the audit log. `runtime.authorize` calls it through `core.policy`; `engine.open_policy` creates it."""
