"""The embedded engine: one asyncio loop, a priority queue with slots, and a journal."""
