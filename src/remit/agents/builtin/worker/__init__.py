"""The worker: files of the workspace, and the web (S5.2). `AGENTS` lists its operations."""

from remit.agents.function import FunctionAgent

AGENTS: list[FunctionAgent] = []
