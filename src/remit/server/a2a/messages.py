"""Incoming A2A messages: their parts as the arguments of a delegation.

Three forms: a data part `{target, operation, parameters, timeout, priority}`; `skill` in the metadata, with the parameters as a data part
or the task as text; text alone, for the assistant, or for the only prompted agent of a project."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from a2a.types import Message, SendMessageRequest
from a2a.utils.errors import ContentTypeNotSupportedError

from remit.agents.proto.extension import EXTENSION, Told, told_in
from remit.agents.proto.values import dict_of, json_of
from remit.core.agents import ASSISTANT, AgentSpec, is_built_in
from remit.core.errors import Misused
from remit.runtime.tool.delegate_requests import ARGUMENTS, DelegateError, signature

TAKEN = (*ARGUMENTS, "budget", "idle")
"""Of a data part. Which delegation is meant, and which it goes on from, is said by the ids of the message; commands that would be run
here (`accept`) are no stranger's to name."""
MODES = ("text/plain", "application/json")
NAMED = 30


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A message, taken apart."""

    text: str
    data: Mapping[str, Any] | None
    skill: str | None
    told: Told
    """Where its sender stands, if that is a remit."""


def read_message(request: SendMessageRequest) -> Asked:
    """Raises `Misused`, or the SDK's error for content that nobody here takes."""
    message = request.message
    metadata = {**dict_of(request.metadata), **dict_of(message.metadata)}
    skill = metadata.get("skill")
    if skill is not None and (not isinstance(skill, str) or not skill):
        raise Misused("skill in the metadata must be the id of a skill.", advice="Take it from the card.")
    return Asked(text=_text(message), data=_data(message), skill=skill, told=told_in(metadata.get(EXTENSION)))


def arguments_of(asked: Asked, specs: Sequence[AgentSpec], *, has_assistant: bool) -> dict[str, Any]:
    """Of the delegate tool. `specs`: the agents that the caller may use; `has_assistant`: whether there is a model to answer for it."""
    if asked.data is not None and ("target" in asked.data or "operation" in asked.data):
        return {**_known(asked.data), **({"target": asked.skill} if asked.skill and "target" not in asked.data else {})}
    named = asked.skill or _anybody(asked, specs, has_assistant)
    spec = next((spec for spec in specs if spec.name == named), None)
    if spec is None:  # the tool says it in its own words, with those that there are
        return {"target": named, "parameters": dict(asked.data or {})}
    if asked.data is not None and "parameters" in asked.data and asked.data.keys() <= set(TAKEN):
        whole = dict(asked.data)
        parameters = whole.pop("parameters")
        given = _with_text(asked, spec, parameters) if isinstance(parameters, Mapping) else parameters
        return {**whole, "target": named, "parameters": given}
    return {"target": named, "parameters": _with_text(asked, spec, asked.data or {})}


def _with_text(asked: Asked, spec: AgentSpec, parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Words are the task of one that takes one; of any other they would vanish silently."""
    if not asked.text:
        return dict(parameters)
    takes = spec.parameters_schema.get("properties", {})
    place = next((name for name in ("task", "message") if name in takes), None)
    if place is None and spec.parameters_schema.get("additionalProperties") and not takes:
        place = "task"  # an agent elsewhere: what it takes is known there
    if place is None:
        raise DelegateError(
            f"{spec.name} takes no words, but parameters.",
            advice=f"Send them as a data part: {signature(spec)}.",
            details={"agent": spec.name, "parameters": dict(spec.parameters_schema)},
        )
    return {place: asked.text, **parameters}


def _anybody(asked: Asked, specs: Sequence[AgentSpec], has_assistant: bool) -> str:
    names = [spec.name for spec in specs]
    if asked.text and has_assistant and ASSISTANT in names:
        return ASSISTANT
    prompted = [spec.name for spec in specs if not is_built_in(spec) and spec.parameters_schema.get("required") == ["task"]]
    if asked.text and len(prompted) == 1:
        return prompted[0]
    listed = ", ".join(names[:NAMED]) + (f" and {len(names) - NAMED} more" if len(names) > NAMED else "")
    raise DelegateError(
        "The message does not say who is meant.",
        code="INVALID_TARGET",
        advice='Name a skill in the metadata of the message, {"skill": "…"}, or send a data part {"target": "…", "parameters": {…}}. '
        f"There are {listed or 'none for you'}.",
        details={"skills": names},
    )


def _known(data: Mapping[str, Any]) -> dict[str, Any]:
    if unknown := [name for name in data if name not in TAKEN]:
        raise DelegateError(
            f"There is no argument {unknown[0]!r:.80}.",
            advice=f"There are {', '.join(TAKEN)}; what an agent takes goes into parameters.",
            details={"arguments": list(TAKEN), "unknown": unknown},
        )
    return dict(data)


def _text(message: Message) -> str:
    return "\n\n".join(part.text for part in message.parts if part.WhichOneof("content") == "text").strip()


def _data(message: Message) -> Mapping[str, Any] | None:
    found: list[Any] = []
    for part in message.parts:
        kind = part.WhichOneof("content")
        if kind == "data":
            found.append(json_of(part.data))
        elif kind != "text":
            raise ContentTypeNotSupportedError("Files are not taken here: name them by their paths in the parameters, or send text.")
    if len(found) > 1:
        raise Misused("The message has more than one data part.", advice="Send one object: {target, operation, parameters, …}.")
    if found and not isinstance(found[0], Mapping):
        raise Misused("The data part must be an object.", advice="Send {target, operation, parameters, …}.")
    return found[0] if found else None
