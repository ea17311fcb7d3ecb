"""Language models: which one is meant, asking it, going on to the next when it fails, and what it costs.

Knows no agent and no delegation beyond the little of a `ctx` that it draws on (`asking.Purse`). `agents.model` and `assistant` hold
conversations with it, the agents that come with remit ask it single questions. pydantic-ai speaks to the providers, and is imported only
when a model is asked: nothing here needs it to be installed before.
"""
