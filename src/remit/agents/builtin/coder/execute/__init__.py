"""`coder.execute_code`: code that nobody trusts, run in the sandbox. `EXECUTE` lists what is offered."""

from remit.agents.builtin.coder.execute.operation import execute_code
from remit.agents.function import FunctionAgent

EXECUTE: list[FunctionAgent] = [execute_code]
