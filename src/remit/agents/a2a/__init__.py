"""Agents elsewhere that speak A2A, asked from here as any other agent: `[agents.NAME] a2a = "https://…"`. Needs `remit[a2a]`."""
