"""Instructions to a language model about the form of its answer: the end of every prompt, and the repair.

Text only; its tests prove that the example obeys the contract. Used by agents that prompt a model or a command."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from remit.core.result import ARTIFACT_TYPES, Status

EXAMPLE_SUMMARY = "Read the three modules named in the task. Wrote down what each of them does and where they overlap."
"""Summary of the example. `validate` refuses it from an agent, as an echo of the prompt."""
_MOST_FAULTS = 20

_RULES = """\
## How to answer

End your answer with exactly one JSON object in a fenced block, as below. Nothing may follow it.
Take these over as they stand: session_id {session_id}, agent_type {agent}, delegation_depth {depth}, delegation_path {path}.

- status: one of {statuses}; lower case.
- summary: 2 to 5 plain sentences, at most 400 characters, no markup and no emoji. It says what was done, not what will be.
- artifacts: one entry for each file you wrote: type (one of {types}),
  path (relative to the project root, inside it), summary.
  With status completed every file must exist and hold something. No files: an empty list.
- errors: empty when completed. With any other status at least one, with type, message, code, recoverable (true or false)
  and recommendation.
- next_steps: what should be done next, or an empty string.
{data}

Work that is not finished is partial, never completed: say in errors what is missing. Files are looked at before you are believed.

```json
{example}
```
"""


_ANY_DATA = "- data: optional; the structured result, any JSON."
_DATA_OF_SCHEMA = """\
- data: the structured result, which the example leaves out. When completed it is required, and must be valid by this JSON schema:
  {schema}"""


def format_instruction(session_id: str, agent: str, depth: int, path: Sequence[str], output_schema: Mapping[str, Any] | None = None) -> str:
    """The end of a prompt: the form of the answer, with the session id to echo."""
    return _RULES.format(
        session_id=session_id,
        agent=agent,
        depth=depth,
        path=json.dumps(list(path), ensure_ascii=False),
        statuses=", ".join(Status),
        types=", ".join(ARTIFACT_TYPES),
        data=_ANY_DATA if output_schema is None else _DATA_OF_SCHEMA.format(schema=json.dumps(dict(output_schema), ensure_ascii=False)),
        example=json.dumps(_example(session_id, agent, depth, path), indent=2, ensure_ascii=False),
    )


def value_instruction(output_schema: Mapping[str, Any]) -> str:
    """The end of a prompt whose answer is the result itself, with a declared schema."""
    return (
        "## How to answer\n\nAnswer with exactly one JSON value in a fenced block and nothing after it. "
        "It must be valid by this JSON schema:\n\n"
        f"{json.dumps(dict(output_schema), ensure_ascii=False)}\n"
    )


def value_repair(faults: Sequence[str], output_schema: Mapping[str, Any]) -> str:
    """The repair request if such a result does not match its schema."""
    return f"{repair_instruction(faults)}\n{value_instruction(output_schema)}"


def repair_instruction(faults: Sequence[str]) -> str:
    """The repair request if the answer broke the contract; sent once."""
    listed = "\n".join(f"- {fault}" for fault in faults[:_MOST_FAULTS])
    more = f"\n- and {len(faults) - _MOST_FAULTS} more" if len(faults) > _MOST_FAULTS else ""
    return (
        f"Your answer could not be accepted:\n{listed}{more}\n\n"
        "Do not do the work again. Correct these faults and send the whole JSON object once more, in the form you were given, "
        "with nothing after it. This is the only repair: a second faulty answer fails the delegation.\n"
    )


def _example(session_id: str, agent: str, depth: int, path: Sequence[str]) -> dict[str, object]:
    return {
        "status": "completed",
        "summary": EXAMPLE_SUMMARY,
        "artifacts": [],
        "metadata": {
            "session_id": session_id,
            "agent_type": agent,
            "delegation_depth": depth,
            "delegation_path": list(path),
        },
        "errors": [],
        "next_steps": "Decide which of the two overlapping modules is kept.",
    }


def return_schema(
    session_id: str, agent: str, depth: int, path: Sequence[str], output_schema: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """The JSON schema of the answer, for providers that can enforce one. Echoed fields are constants."""
    metadata = {
        "session_id": _only(session_id), "agent_type": _only(agent), "delegation_depth": {"type": "integer", "enum": [depth]},
        "delegation_path": {"type": "array", "items": {"type": "string", "enum": list(dict.fromkeys(path))}},
    }  # fmt: skip
    text = {"type": "string"}
    artifact = {"type": {"type": "string", "enum": list(ARTIFACT_TYPES)}, "path": text, "summary": text}
    error = {"type": text, "message": text, "code": text, "recoverable": {"type": "boolean"}, "recommendation": text}
    fields: dict[str, Any] = {
        "status": {"type": "string", "enum": [str(status) for status in Status]}, "summary": text,
        "artifacts": {"type": "array", "items": _object(artifact)}, "metadata": _object(metadata),
        "errors": {"type": "array", "items": _object(error)}, "next_steps": text,
    }  # fmt: skip
    if output_schema is None:
        return _object(fields)
    inner = {name: value for name, value in output_schema.items() if name not in ("$defs", "definitions", "$schema", "$id")}
    shared = {name: output_schema[name] for name in ("$defs", "definitions") if name in output_schema}
    # Not required: only a completed return has data. References (`#/$defs/…`) work, because the definitions are at the top again.
    return {**_object(fields), "properties": {**fields, "data": inner}, **shared}


def _only(value: str) -> dict[str, Any]:
    return {"type": "string", "enum": [value]}


def _object(properties: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}
