"""The coder: analyses, reviews, generates and runs code (S5.2). `AGENTS` lists its operations."""

from remit.agents.function import FunctionAgent

AGENTS: list[FunctionAgent] = []
