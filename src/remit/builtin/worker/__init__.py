"""The worker: files of the workspace, and the web. `AGENTS` lists its operations."""

from remit.agents.function import FunctionAgent
from remit.builtin.worker.files import FILES
from remit.builtin.worker.web import WEB

AGENTS: list[FunctionAgent] = [*FILES, *WEB]
