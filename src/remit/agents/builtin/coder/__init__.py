"""The coder: analyses, reviews, generates and runs code (S5.2). `AGENTS` lists its operations."""

from remit.agents.builtin.coder.analysis import ANALYSIS
from remit.agents.builtin.coder.execute import EXECUTE
from remit.agents.builtin.coder.generate import GENERATE
from remit.agents.builtin.coder.review import REVIEW
from remit.agents.function import FunctionAgent

AGENTS: list[FunctionAgent] = [*ANALYSIS, *REVIEW, *GENERATE, *EXECUTE]
