"""The coder: analyses, reviews, generates and runs code. `agents` lists its operations."""

from remit.agents.function import FunctionAgent
from remit.builtin.coder.analysis import analyze_code
from remit.builtin.coder.execute import execute_code
from remit.builtin.coder.generate import make_generate_code
from remit.builtin.coder.review import review_code
from remit.core.settings import Settings
from remit.models.client import Models


def agents(settings: Settings, models: Models) -> list[FunctionAgent]:
    return [analyze_code, review_code, make_generate_code(models), execute_code]
