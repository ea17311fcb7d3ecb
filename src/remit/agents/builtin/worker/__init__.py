"""The worker: files of the workspace, and the web. `AGENTS` lists its operations."""

from remit.agents.builtin.worker.files import FILES
from remit.agents.builtin.worker.web import WEB
from remit.agents.function import FunctionAgent

AGENTS: list[FunctionAgent] = [*FILES, *WEB]
