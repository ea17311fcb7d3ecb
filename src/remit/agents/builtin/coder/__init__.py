"""The coder: analyses, reviews, generates and runs code. `agents` lists its operations."""

from remit.agents.builtin.coder.analysis import ANALYSIS
from remit.agents.builtin.coder.execute import EXECUTE
from remit.agents.builtin.coder.generate import generating
from remit.agents.builtin.coder.review import REVIEW
from remit.agents.function import FunctionAgent
from remit.models.client import Models
from remit.settings import Settings


def agents(settings: Settings, models: Models) -> list[FunctionAgent]:
    return [*ANALYSIS, *REVIEW, generating(settings.generate_on, models), *EXECUTE]
