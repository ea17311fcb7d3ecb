"""The Temporal engine: hands delegations to workers through Temporal and records them in a shared store."""
