"""The researcher: answers from sources, each sentence quoted and traceable (S5.2). `AGENTS` lists its operations."""

from remit.agents.function import FunctionAgent

AGENTS: list[FunctionAgent] = []
