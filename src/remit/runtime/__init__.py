"""From request to return: one module per step of a delegation, the context of agents, and the `Engine` port."""
