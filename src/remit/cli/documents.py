"""What is known, as JSON documents: the shapes that `--json` prints. Times are wall clock seconds."""

from typing import TYPE_CHECKING, Any

from remit.core.agents import AgentSpec
from remit.core.events import STEPS, Event
from remit.core.record import Record

if TYPE_CHECKING:
    from remit.agents.definition import Definition


def record_document(record: Record) -> dict[str, Any]:
    return {
        "session_id": record.session_id,
        "root_id": record.root_id,
        "parent_id": record.parent_id,
        "agent": record.agent,
        "command": record.command,
        "status": str(record.state),
        "depth": record.depth,
        "path": list(record.path),
        "caller": record.caller,
        "came": record.came.to_dict() if record.came else None,
        "priority": record.priority.name.lower(),
        "parameters": dict(record.parameters),
        "key": record.key,
        "accept": list(record.accept),
        "budget": record.limits.to_dict() if record.limits else None,
        "task": record.task.to_dict() if record.task else None,
        "created_at": record.created_at,
        "started_at": record.started_at,
        "settled_at": record.settled_at,
        "timeout": record.timeout_seconds,
        "deadline": record.deadline_at,
        "idle": record.idle_seconds,
        "attempt": record.attempt,
        "tokens": record.tokens,
        "cost": record.cost,
        "owner": record.owner,
        "steps": {step: at for step, at in zip(STEPS, record.step_times, strict=True) if at is not None},
        "return": record.result.to_dict() if record.result else None,
    }


def event_document(event: Event) -> dict[str, Any]:
    return {"session_id": event.session_id, "number": event.number, "at": event.at, "kind": str(event.kind), "body": event.body}


def definition_document(definition: "Definition | None") -> dict[str, Any]:
    """What an agent that is no Python function declares beside; of its environment only the names."""
    if definition is None:
        return {}
    return {
        "command": list(definition.command),
        "prompt": str(definition.prompt),
        "folder": definition.folder,
        "pass_environment": list(definition.pass_environment),
        "environment": sorted(definition.environment),
        "model": definition.model,
        "models": list(definition.models),
        "tools": None if definition.tools is None else list(definition.tools),
        "requests": definition.requests,
        "temperature": definition.temperature,
        "notes": list(definition.notes),
        "allow": list(definition.allow),
        "delegates": definition.delegates,
        "hand_in": definition.hand_in,
        "options": list(definition.options),
        "runs_on": definition.runs_on,
    }


def agent_document(spec: AgentSpec, timeout_seconds: float, maximum_seconds: float) -> dict[str, Any]:
    from remit.core.agents import is_built_in

    return {
        "name": spec.name,
        "description": spec.description,
        "kind": spec.kind,
        "isolation": str(spec.isolation),
        "timeout": timeout_seconds,
        "maximum": maximum_seconds,
        "idle": spec.idle_seconds,
        "answers": str(spec.answers),
        "workspace": str(spec.workspace),
        "merge": spec.merge,
        "resumable": spec.resumable,
        "requires_artifacts": spec.requires_artifacts,
        "retries": spec.retries,
        "slots": spec.slots,
        "languages": list(spec.languages),
        "operations": list(spec.operations),
        "output_schema": spec.output_schema,
        "source": spec.source,
        "built_in": is_built_in(spec),
        "parameters": spec.parameters_schema,
    }
