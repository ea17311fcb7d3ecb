"""Engines: implementations of the `Engine` port. `embedded` runs delegations on one asyncio loop with a journal in SQLite."""
