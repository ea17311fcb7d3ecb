"""Remote agents that speak A2A: `[agents.NAME] a2a = "https://…"`. Needs `remit[a2a]`."""
