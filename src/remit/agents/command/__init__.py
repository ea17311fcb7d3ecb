"""Any command as an agent: the prompt goes in by one of three ways, what it prints is its answer.

`agent` carries it out, `arguments` says what is started, `environment` what it finds in its environment, `output` reads what it prints.
"""

from remit.agents.command.agent import CommandAgent
from remit.agents.command.environment import environment_for

__all__ = ["CommandAgent", "environment_for"]
