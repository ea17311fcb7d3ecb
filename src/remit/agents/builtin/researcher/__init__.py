"""The researcher: answers from sources, each sentence quoted and traceable (S5.2). `AGENTS` lists its operations.

Extractive: it says nothing itself. `research` is the story of one question, `synthesis` of given sources; both look at the world only
through worker children (`gathering`). Where a model is configured it plans (`planning`) and writes (`writing`) from the quotations, and
`written` holds each of its sentences against what it cites.
"""

from remit.agents.builtin.researcher.operations import deep_research, synthesize_sources
from remit.agents.function import FunctionAgent

AGENTS: list[FunctionAgent] = [deep_research, synthesize_sources]
