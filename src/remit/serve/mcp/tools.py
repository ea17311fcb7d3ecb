"""The six tools as a client sees them: names, words, schemas and hints, made from the directory (S5.1). Carries out none of them.

The agents and what each takes stand in words, not as `oneOf`: model vendors refuse alternatives at the top of a tool's schema, and a
model reads a signature better. What the agent itself checks stays the agent's.
"""

from typing import Any

from mcp_types import Tool, ToolAnnotations

from remit.core.result import Status
from remit.core.states import State
from remit.tool import schema
from remit.tool.catalogue import Catalogue

SEE = ": see list_agents"
MANY = 32
"""Delegations in one call of `delegate_many`."""

_SESSION = {"type": "string", "description": "The id that delegate gave, e.g. sess_1763200000_abc123."}
_WAIT = {
    "type": "integer",
    "minimum": 0,
    "description": "Answer after so many milliseconds, with a handle if it is not done; 0: at once. At most the server's own limit.",
}
_ERROR = {
    "type": "object",
    "properties": {
        "code": {"type": "string"},
        "message": {"type": "string"},
        "type": {"type": "string"},
        "recoverable": {"type": "boolean"},
        "recommendation": {"type": "string"},
    },
}
_RETURN_PROPERTIES: dict[str, Any] = {
    "session_id": {"type": "string", "description": "By this it is found again."},
    "state": {"type": "string", "enum": [str(state) for state in State], "description": "queued or running: not done, ask again."},
    "status": {"type": "string", "enum": [str(status) for status in Status], "description": "Of a finished one."},
    "summary": {"type": "string"},
    "data": {"description": "The structured result, any JSON."},
    "artifacts": {"type": "array", "items": {"type": "object"}, "description": "Files it produced, by their path in the project."},
    "errors": {"type": "array", "items": _ERROR},
    "next_steps": {"type": "string"},
    "metadata": {"type": "object"},
    "stop_reason": {"type": "string"},
    "evidence": {"type": "string", "description": "claimed, checked or verified: how far the claim was checked."},
    "message": {"type": "string", "description": "Of one that is not done: what to do next."},
    "ask_again": {"type": "object", "description": "The tool and the arguments that give the return."},
    "shortened": {"type": "string", "description": "Present when this answer was cut: how to get the whole."},
}
RETURN_SCHEMA: dict[str, Any] = {"type": "object", "properties": _RETURN_PROPERTIES, "required": ["state"]}


def tools_of(catalogue: Catalogue) -> list[Tool]:
    return [_delegate(catalogue), _delegate_many(catalogue), _status(), _result(), _cancel(), _list_agents(catalogue)]


def _delegate(catalogue: Catalogue) -> Tool:
    return Tool(
        name="delegate",
        title="Delegate work to an agent",
        description=(
            "Hand a piece of work to another agent and get its checked return: status (completed, partial, failed, blocked), summary, "
            "data, artifacts (files), errors with advice. It always answers, at the latest by its timeout, with whatever was done. If it "
            "takes longer than about 45 s, you get a handle (state running) instead: ask for the return with delegation_result, do not "
            "delegate again. A refusal (depth, cycle, budget, parameters) is final: change what you ask for.\n\n"
            + schema.description(catalogue, rest=SEE)
        ),
        input_schema={
            "type": "object",
            "properties": {**_delegation_properties(catalogue), "wait_ms": _WAIT},
            "required": ["target", "parameters"],
        },
        output_schema=RETURN_SCHEMA,
        annotations=ToolAnnotations(read_only_hint=False, destructive_hint=True, idempotent_hint=False, open_world_hint=True),
    )


def _delegation_properties(catalogue: Catalogue) -> dict[str, Any]:
    return {
        **schema.properties(catalogue, rest=SEE),
        "key": {"type": "string", "description": "Idempotency: work with the same key is never done twice; its return is given again."},
        "accept": {
            "type": "array",
            "items": {"type": "string"},
            "description": "Commands that must exit 0 in the project afterwards for it to count as completed, e.g. pytest -q.",
        },
        "budget": {
            "type": "object",
            "description": "Limits for it and everything below it.",
            "properties": {
                "delegations": {"type": "integer", "minimum": 0},
                "alive": {"type": "integer", "minimum": 0},
                "tokens": {"type": "integer", "minimum": 0},
                "cost": {"type": "number", "minimum": 0},
                "seconds": {"type": "number", "minimum": 0},
            },
        },
    }


def _delegate_many(catalogue: Catalogue) -> Tool:
    one = {"type": "object", "properties": _delegation_properties(catalogue), "required": ["target", "parameters"]}
    return Tool(
        name="delegate_many",
        title="Delegate several pieces of work at once",
        description=(
            f"Up to {MANY} delegations at the same time, each described as for delegate (see there for the agents). The results come in "
            "the order of the calls; one that fails loses none of the others. After about 45 s the finished ones are answered, and handles "
            "for the rest: ask for those with delegation_result."
        ),
        input_schema={
            "type": "object",
            "properties": {"delegations": {"type": "array", "items": one, "minItems": 1, "maxItems": MANY}, "wait_ms": _WAIT},
            "required": ["delegations"],
        },
        output_schema={
            "type": "object",
            "properties": {
                "results": {"type": "array", "items": RETURN_SCHEMA, "description": "In the order of the calls."},
                "finished": {"type": "integer"},
                "running": {"type": "integer"},
                "shortened": {"type": "string"},
            },
            "required": ["results"],
        },
        annotations=ToolAnnotations(read_only_hint=False, destructive_hint=True, idempotent_hint=False, open_world_hint=True),
    )


def _status() -> Tool:
    return Tool(
        name="delegation_status",
        title="How a delegation is doing",
        description=(
            "State, step, age, time left, last sign of life, tokens and children of a delegation, and whether it looks stuck. Does not "
            "wait. Without session_id: everything that is queued or running."
        ),
        input_schema={"type": "object", "properties": {"session_id": _SESSION}},
        output_schema={
            "type": "object",
            "properties": {
                "session_id": {"type": "string"},
                "state": {"type": "string"},
                "agent": {"type": "string"},
                "step": {"type": "string"},
                "age_seconds": {"type": "number"},
                "left_seconds": {"type": "number"},
                "heard_seconds_ago": {"type": "number"},
                "tokens": {"type": "integer"},
                "stuck": {"type": ["string", "null"], "description": "Why it looks stuck; null when it does not."},
                "children": {"type": "array", "items": {"type": "object"}},
                "active": {"type": "integer"},
                "delegations": {"type": "array", "items": {"type": "object"}},
            },
        },
        annotations=ToolAnnotations(read_only_hint=True, open_world_hint=False),
    )


def _result() -> Tool:
    return Tool(
        name="delegation_result",
        title="The return of a delegation",
        description=(
            "The return of a delegation, waiting for it as delegate does; a handle again if it is still running. Also of one that was "
            "started earlier, by another client or process. With offset: the whole return as JSON text, page by page."
        ),
        input_schema={
            "type": "object",
            "properties": {
                "session_id": _SESSION,
                "wait_ms": _WAIT,
                "offset": {"type": "integer", "minimum": 0, "description": "Where the page begins, in characters of the whole."},
                "limit": {"type": "integer", "minimum": 1, "description": "Characters of one page."},
            },
            "required": ["session_id"],
        },
        output_schema={**RETURN_SCHEMA, "properties": {**_RETURN_PROPERTIES, "page": {"type": "object"}}},
        annotations=ToolAnnotations(read_only_hint=True, open_world_hint=False),
    )


def _cancel() -> Tool:
    return Tool(
        name="delegation_cancel",
        title="Stop a delegation",
        description="Stop a delegation and everything below it, whichever process runs it; how each of them ended. What was done is kept.",
        input_schema={
            "type": "object",
            "properties": {"session_id": _SESSION, "reason": {"type": "string", "description": "Why; it is recorded."}},
            "required": ["session_id"],
        },
        output_schema={
            "type": "object",
            "properties": {
                "session_id": {"type": "string"},
                "state": {"type": "string"},
                "nodes": {"type": "array", "items": {"type": "object"}, "description": "How each of the tree ended."},
            },
        },
        annotations=ToolAnnotations(read_only_hint=False, destructive_hint=True, idempotent_hint=True, open_world_hint=False),
    )


def _list_agents(catalogue: Catalogue) -> Tool:
    offset = {"type": "integer", "minimum": 0, "description": "Where a further page begins: next_offset of the one before."}
    return Tool(
        name="list_agents",
        title="Which agents there are",
        description="The agents that delegate can hand work to: what each does, the JSON schema of its parameters, and its time limits.",
        input_schema={
            "type": "object",
            "properties": {
                "target": schema.one_of("Only the agents of this target.", sorted(catalogue.targets()), rest=SEE),
                "offset": offset,
            },
        },
        output_schema={
            "type": "object",
            "properties": {
                "agents": {"type": "array", "items": {"type": "object"}},
                "problems": {"type": "array", "items": {"type": "string"}, "description": "Agent files that could not be loaded."},
                "next_offset": {"type": "integer", "description": "Present when there are more: ask again with this offset."},
            },
        },
        annotations=ToolAnnotations(read_only_hint=True, open_world_hint=False),
    )
