"""The six MCP tools as offered to a client: names, descriptions, schemas and hints, built from the directory.

Agents and parameters are described as text, not as `oneOf`: model vendors refuse alternatives at the top of a tool's schema."""

from collections.abc import Mapping
from typing import Any

from mcp_types import Tool, ToolAnnotations

from remit.core import delegate_requests
from remit.core.delegate_requests import Catalogue
from remit.core.delegate_results import TaskState
from remit.core.result import Status
from remit.core.states import State

SEE = ": see list_agents"
MANY = 32
"""Delegations in one call of `delegate_many`."""

Schema = dict[str, Any]
OBJECT: Schema = {"type": "object"}
OBJECTS: Schema = {"type": "array", "items": OBJECT}
ACTS = ToolAnnotations(read_only_hint=False, destructive_hint=True, idempotent_hint=False, open_world_hint=True)
LOOKS = ToolAnnotations(read_only_hint=True, open_world_hint=False)
STOPS = ToolAnnotations(read_only_hint=False, destructive_hint=True, idempotent_hint=True, open_world_hint=False)


def _text(description: str = "", **more: Any) -> Schema:
    return {"type": "string", **({"description": description} if description else {}), **more}


def _count(description: str, minimum: int = 0) -> Schema:
    return {"type": "integer", "minimum": minimum, "description": description}


def _object(properties: Mapping[str, Schema], *required: str) -> Schema:
    return {"type": "object", "properties": dict(properties), **({"required": list(required)} if required else {})}


_SESSION = _text("The id that delegate gave, e.g. sess_1763200000_abc123.")
_WAIT = _count("Answer after this many milliseconds, with a handle if it is not done; 0: at once. At most the server's own limit.")
_RETURN: dict[str, Schema] = {
    "session_id": _text("Use it to find the delegation again."),
    "state": _text("queued or running: not done, ask again.", enum=[str(state) for state in State]),
    "status": _text("Of a finished delegation.", enum=[str(status) for status in Status]),
    "summary": _text(),
    "data": {"description": "The structured result, any JSON."},
    "artifacts": {**OBJECTS, "description": "Files it produced, by their path in the project."},
    "errors": {**OBJECTS, "description": "Each with code, message and recommendation."},
    "ask_again": {**OBJECT, "description": "The tool and the arguments that give the return."},
    "continue_with": {**OBJECT, "description": "The tool and the arguments that continue it; add parameters with what is left to do."},
    "shortened": _text("Present when this answer was cut: how to get the whole."),
    "success": {"type": "boolean", "description": "Whether it is completed. This and the fields below are those of the delegate tool."},
    "taskId": {"type": ["string", "null"], "description": "The session id."},
    "taskState": _text(enum=[str(state) for state in TaskState]),
    "output": _text("The summary."),
    "error": {"type": ["object", "null"], "description": "The first error, by the codes of the delegate tool."},
}
RETURN_SCHEMA = _object(_RETURN, "state")
_WHOLE = {"type": "integer", "minimum": 0}
_AMOUNT = {"type": "number", "minimum": 0}
_BUDGET = _object({"delegations": _WHOLE, "alive": _WHOLE, "tokens": _WHOLE, "cost": _AMOUNT, "seconds": _AMOUNT})


def tools_of(catalogue: Catalogue) -> list[Tool]:
    return [*_delegation_tools(catalogue), *_query_tools(catalogue)]


def _delegation_tools(catalogue: Catalogue) -> list[Tool]:
    delegation = {
        **delegate_requests.properties(catalogue, rest=SEE),
        "key": _text("Idempotency: work with the same key is never done twice; its return is given again."),
        "accept": {
            "type": "array",
            "items": _text(),
            "description": "Commands that must exit 0 in the project afterwards for it to count as completed, e.g. pytest -q.",
        },
        "budget": {**_BUDGET, "description": "Limits for it and everything below it."},
    }
    many = {"type": "array", "items": _object(delegation, "target", "parameters"), "minItems": 1, "maxItems": MANY}
    return [
        Tool(
            name="delegate",
            title="Delegate work to an agent",
            description="Hand a piece of work to another agent and get its checked return: status (completed, partial, failed, blocked), "
            "summary, data, artifacts (files), errors with advice. It always answers, at the latest by its timeout, with whatever was "
            "done. If it takes longer than about 45 s, you get a handle (state running) instead: ask for the return with "
            "delegation_result, do not delegate again. A refusal (depth, cycle, budget, parameters) is final: change what you ask for.\n\n"
            + delegate_requests.description(catalogue, rest=SEE),
            input_schema=_object({**delegation, "wait_ms": _WAIT}, "target", "parameters"),
            output_schema=RETURN_SCHEMA,
            annotations=ACTS,
        ),
        Tool(
            name="delegate_many",
            title="Delegate several pieces of work at once",
            description=f"Up to {MANY} delegations at the same time, each described as for delegate (see there for the agents). The "
            "results come in the order of the calls; one that fails loses none of the others. After about 45 s the finished ones are "
            "answered, and handles for the rest: ask for those with delegation_result.",
            input_schema=_object({"delegations": many, "wait_ms": _WAIT}, "delegations"),
            output_schema=_object({"results": {"type": "array", "items": RETURN_SCHEMA}}, "results"),
            annotations=ACTS,
        ),
    ]


def _query_tools(catalogue: Catalogue) -> list[Tool]:
    targets = delegate_requests.one_of("Only the agents of this target.", sorted(catalogue.targets()), rest=SEE)
    return [
        Tool(
            name="delegation_status",
            title="How a delegation is doing",
            description="State, step, age, time left, last activity, tokens and children of a delegation, and whether it looks stuck. Does "
            "not wait. Without session_id: everything that is queued or running.",
            input_schema=_object({"session_id": _SESSION}),
            output_schema=_object(
                {
                    "state": _text(),
                    "stuck": {"type": ["string", "null"], "description": "Why it looks stuck; null when it does not."},
                    "children": OBJECTS,
                    "delegations": OBJECTS,
                }
            ),
            annotations=LOOKS,
        ),
        Tool(
            name="delegation_result",
            title="The return of a delegation",
            description="The return of a delegation, waiting for it as delegate does; a handle again if it is still running. Also of one "
            "that was started earlier, by another client or process. With offset: the whole return as JSON text, page by page.",
            input_schema=_object(
                {
                    "session_id": _SESSION,
                    "wait_ms": _WAIT,
                    "offset": _count("Where the page begins, in characters of the whole."),
                    "limit": _count("Characters of one page.", minimum=1),
                },
                "session_id",
            ),
            output_schema=_object({**_RETURN, "page": OBJECT}, "state"),
            annotations=LOOKS,
        ),
        Tool(
            name="delegation_cancel",
            title="Stop a delegation",
            description="Stop a delegation and everything below it, whichever process runs it; how each of them ended. Work done is kept.",
            input_schema=_object({"session_id": _SESSION, "reason": _text("Why; it is recorded.")}, "session_id"),
            output_schema=_object({"state": _text(), "nodes": {**OBJECTS, "description": "How each delegation of the tree ended."}}),
            annotations=STOPS,
        ),
        Tool(
            name="list_agents",
            title="Which agents there are",
            description="The agents that delegate can hand work to: what each does, the schema of its parameters, and its time limits.",
            input_schema=_object({"target": targets}),
            output_schema=_object(
                {
                    "agents": OBJECTS,
                    "problems": {"type": "array", "items": _text(), "description": "Agent files that could not be loaded."},
                    "errors": {**OBJECTS, "description": "NOT_TRUSTED: what a person has not approved is left out."},
                    "message": _text("Present when there are more: which targets to name."),
                }
            ),
            annotations=LOOKS,
        ),
    ]
