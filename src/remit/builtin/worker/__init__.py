"""The worker: files of the workspace, and the web. `AGENTS` lists its operations."""

from remit.agents.function import FunctionAgent
from remit.builtin.worker.files import delete_file, list_files, read_file, search_files, write_file
from remit.builtin.worker.web import web_fetch, web_search

AGENTS: list[FunctionAgent] = [read_file, write_file, delete_file, list_files, search_files, web_fetch, web_search]
