"""The coder: analyses, reviews, generates and runs code. `agents` lists its operations."""

from remit.agents.function import FunctionAgent
from remit.builtin.coder.analysis import ANALYSIS
from remit.builtin.coder.execute import EXECUTE
from remit.builtin.coder.generate import make_generate_code
from remit.builtin.coder.review import REVIEW
from remit.core.settings import Settings
from remit.models.client import Models


def agents(settings: Settings, models: Models) -> list[FunctionAgent]:
    return [*ANALYSIS, *REVIEW, make_generate_code(settings.generate_on, models), *EXECUTE]
