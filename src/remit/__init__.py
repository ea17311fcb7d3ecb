"""remit: hand work to any agent and always get an answer back: in time, in one checked shape, with whatever was done.

The public API is `remit` and `remit.testing`; everything else may change without notice. Names are imported when they are first used.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from remit.agents.definition import Definition as AgentDefinition
    from remit.agents.executors import ExecutorDeps
    from remit.agents.function import FunctionAgent, agent
    from remit.agents.proto.v1 import tasks_pb2, tasks_pb2_grpc
    from remit.app import Remit, run
    from remit.board.board import Board
    from remit.board.command_files import find as find_command
    from remit.board.error_tasks import errors as errors_to_task
    from remit.board.implement import implement as implement_task
    from remit.board.importer import import_board
    from remit.board.outcome import Outcome
    from remit.board.parallel import ParallelOptions, implement_parallel
    from remit.board.project_commands import bind_command
    from remit.board.project_commands import run as run_command
    from remit.board.research_plan import plan as plan_task
    from remit.board.research_plan import research as research_task
    from remit.board.research_plan import revise as revise_plan
    from remit.board.review import ReviewRequest
    from remit.board.review import review as review_work
    from remit.board.task import Priority as TaskPriority
    from remit.board.task import State as BoardState
    from remit.board.task import Status as TaskStatus
    from remit.board.task import Task, TaskArtifact
    from remit.board.task_commands import NewTask
    from remit.board.task_commands import abandon as abandon_tasks
    from remit.board.task_commands import divide as divide_task
    from remit.board.task_commands import record as add_task
    from remit.board.task_commands import recover as recover_tasks
    from remit.board.task_commands import sync as sync_board
    from remit.board.task_commands import todo as archive_tasks
    from remit.builtin.assistant.conversations import Conversations
    from remit.builtin.assistant.stream import ask
    from remit.core.agents import AgentSpec, Isolation
    from remit.core.budget import Budget, Limits
    from remit.core.composition import best, each, first, parallel, sequence
    from remit.core.context import BlockingContext, Context, Handle
    from remit.core.deadline import Clock, Deadline, TimeLimits
    from remit.core.delegate_requests import DelegateError
    from remit.core.delegate_results import Chunk, DelegateResult, TaskState
    from remit.core.delegation import CallerInfo, Delegation, Lineage, TaskContext
    from remit.core.errors import AgentCrashed, ErrorInfo, Failed, InvalidReturn, Misused, Refused, RemitError, Stopped, Unavailable
    from remit.core.events import Event, EventKind
    from remit.core.ids import new_session_id, span_id_of
    from remit.core.lifecycle import LifecycleEvent, LifecycleKind
    from remit.core.policy import Decision, Effect, PolicyRequest
    from remit.core.ports import AgentPort, Store
    from remit.core.record import (
        AppendEvent,
        BeginDelegation,
        HistoryQuery,
        Owner,
        Record,
        RecordDelegation,
        SaveCheckpoint,
        SettleDelegation,
        StartDelegation,
        Write,
        WriteResult,
    )
    from remit.core.request import Composition, Request, call
    from remit.core.result import Artifact, Evidence, Metadata, Return, Status, StopReason
    from remit.core.settings import Settings
    from remit.core.states import Priority, State
    from remit.engines.temporal.plugin import RemitPlugin, workflow_delegate
    from remit.runtime import engine_kit
    from remit.runtime.engine import Engine, EngineConfig
    from remit.runtime.telemetry.logs import set_up_logs
    from remit.runtime.tool.delegate_tool import DelegateTool
    from remit.runtime.validate import check_return
    from remit.server.client import Client, discover
    from remit.stores import MemoryStore, SqliteStore
    from remit.system.settings_files import load_settings

__all__ = [
    "AgentCrashed", "AgentDefinition", "AgentPort", "AgentSpec", "AppendEvent", "Artifact", "BeginDelegation", "BlockingContext",
    "Board", "BoardState", "Budget", "CallerInfo", "Chunk", "Client", "Clock", "Composition", "Context", "Conversations", "Deadline",
    "Decision", "DelegateError", "DelegateResult", "DelegateTool", "Delegation", "Effect", "Engine", "EngineConfig", "ErrorInfo",
    "Event", "EventKind", "Evidence", "ExecutorDeps", "Failed", "FunctionAgent", "Handle", "HistoryQuery", "InvalidReturn", "Isolation",
    "LifecycleEvent", "LifecycleKind", "Limits", "Lineage", "MemoryStore", "Metadata", "Misused", "NewTask", "Outcome", "Owner",
    "ParallelOptions", "PolicyRequest", "Priority", "Record", "RecordDelegation", "Refused", "Remit", "RemitError", "RemitPlugin",
    "Request", "Return", "ReviewRequest", "SaveCheckpoint",
    "Settings", "SettleDelegation", "SqliteStore", "StartDelegation", "State", "Status", "StopReason", "Stopped", "Store", "Task",
    "TaskArtifact", "TaskContext", "TaskPriority", "TaskState", "TaskStatus", "TimeLimits", "Unavailable", "Write",
    "WriteResult", "abandon_tasks", "add_task", "agent", "archive_tasks", "ask", "best", "bind_command", "call", "check_return",
    "discover", "divide_task", "each", "engine_kit", "errors_to_task", "find_command", "first", "implement_parallel", "implement_task",
    "import_board", "load_settings", "new_session_id", "parallel", "plan_task",
    "recover_tasks", "research_task", "review_work", "revise_plan", "run", "run_command", "sequence",
    "set_up_logs", "span_id_of", "sync_board", "tasks_pb2", "tasks_pb2_grpc", "workflow_delegate",
]  # fmt: skip
_PUBLIC = {
    "remit.board.outcome": "Outcome",
    "remit.board.task_commands": "NewTask record=add_task abandon=abandon_tasks recover=recover_tasks divide=divide_task "
    "todo=archive_tasks sync=sync_board",
    "remit.runtime": "engine_kit",
    "remit.runtime.engine": "Engine EngineConfig",
    "remit.core.policy": "Decision Effect PolicyRequest",
    "remit.core.deadline": "Clock Deadline TimeLimits",
    "remit.core.delegation": "CallerInfo Delegation Lineage TaskContext",
    "remit.core.agents": "AgentSpec Isolation",
    "remit.core.states": "Priority State",
    "remit.agents.definition": "Definition=AgentDefinition",
    "remit.agents.executors": "ExecutorDeps",
    "remit.agents.function": "agent FunctionAgent",
    "remit.agents.proto.v1": "tasks_pb2 tasks_pb2_grpc",
    "remit.app": "Remit run",
    "remit.board.board": "Board",
    "remit.board.command_files": "find=find_command",
    "remit.board.error_tasks": "errors=errors_to_task",
    "remit.board.implement": "implement=implement_task",
    "remit.board.parallel": "ParallelOptions implement_parallel",
    "remit.board.importer": "import_board",
    "remit.board.project_commands": "bind_command run=run_command",
    "remit.board.research_plan": "research=research_task plan=plan_task revise=revise_plan",
    "remit.board.review": "ReviewRequest review=review_work",
    "remit.board.task": "Task State=BoardState Status=TaskStatus TaskArtifact Priority=TaskPriority",
    "remit.builtin.assistant.conversations": "Conversations",
    "remit.builtin.assistant.stream": "ask",
    "remit.core.budget": "Limits Budget",
    "remit.core.composition": "best each first parallel sequence",
    "remit.core.errors": "AgentCrashed ErrorInfo Failed InvalidReturn Misused Refused RemitError Stopped Unavailable",
    "remit.core.events": "Event EventKind",
    "remit.core.lifecycle": "LifecycleEvent LifecycleKind",
    "remit.core.ports": "Store AgentPort",
    "remit.core.record": "HistoryQuery Owner Record Write WriteResult AppendEvent BeginDelegation RecordDelegation SaveCheckpoint "
    "SettleDelegation StartDelegation",
    "remit.core.request": "call Request Composition",
    "remit.core.result": "Artifact Evidence Metadata Return Status StopReason",
    "remit.core.settings": "Settings",
    "remit.core.ids": "span_id_of new_session_id",
    "remit.core.context": "Context BlockingContext Handle",
    "remit.engines.temporal.plugin": "RemitPlugin workflow_delegate",
    "remit.runtime.telemetry.logs": "set_up_logs",
    "remit.core.delegate_requests": "DelegateError",
    "remit.core.delegate_results": "DelegateResult Chunk TaskState",
    "remit.runtime.tool.delegate_tool": "DelegateTool",
    "remit.runtime.validate": "check_return",
    "remit.server.client": "Client discover",
    "remit.stores": "MemoryStore SqliteStore",
    "remit.system.settings_files": "load_settings",
}
"""Public names by module; `implement=implement_task` is `implement` under the name `implement_task`."""
_HOME_OF = {
    public or own: (module, own) for module, names in _PUBLIC.items() for own, _, public in (name.partition("=") for name in names.split())
}


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module 'remit' has no attribute {name!r}")
    module, own = _HOME_OF[name]
    found = importlib.import_module(module)
    if not hasattr(found, own):
        importlib.import_module(f"{module}.{own}")  # a module is public as well
    globals()[name] = value = getattr(found, own)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
