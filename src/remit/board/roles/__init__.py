"""The built-in agents of the board's roles; `remit.agents.roles` names them."""
