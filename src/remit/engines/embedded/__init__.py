"""Engines: what runs delegations and keeps them. `embedded` is one asyncio loop, a priority queue with slots and a journal."""
