"""Language models: name resolution, requests, failover and cost.

Independent of agents; of a delegation it only uses the part of `ctx` that it draws on (`SpendSink`). `agents.model` and `assistant` hold
conversations with it, built-in agents ask single questions. pydantic-ai speaks to the providers, and is imported only when a model is used.
"""
