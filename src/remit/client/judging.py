"""A request to one of the targets that come with remit, judged before anything is sent (S5.3): by the rules of the delegate tool itself.

The operations and their parameters are those of S5.2, as the agents declare them. Used by `delegating`.
"""

import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from remit.agents.builtin import loader
from remit.agents.function import FunctionAgent
from remit.client.configs import DelegationConfig
from remit.models.client import Models
from remit.proto.times import nanoseconds
from remit.proto.v1 import tasks_pb2 as pb
from remit.proto.values import struct_of
from remit.settings import Settings
from remit.tool.catalogue import Catalogue
from remit.tool.faults import DelegateError
from remit.tool.request import DelegateRequest, Reader, milliseconds

ALSO = ("key", "accept", "budget", "resume", "idle")
"""What a request takes here beside the arguments of the tool."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    message: pb.ExecuteTaskRequest
    agent: str
    timeout_seconds: float


class Judge:
    def __init__(self, target: str) -> None:
        settings = Settings()
        self._target = target
        self._agents: dict[str, FunctionAgent] = {one.spec.name: one for one in loader(target, settings, Models(settings))()}
        self._catalogue = Catalogue(lambda: [one.spec for one in self._agents.values()])

    def read(self, params: Mapping[str, Any], config: DelegationConfig, session_id: str) -> Judged:
        """What is sent for it. Raises `DelegateError`, with what is allowed."""
        if isinstance(params, Mapping) and params.get("target") is None:
            params = {**params, "target": self._target}
        reader = Reader(self._catalogue, self._agents.get, lambda _name: config.limits)
        request = reader.read(params, *ALSO)
        seconds = request.timeout_seconds or config.limits.default_seconds
        message = pb.ExecuteTaskRequest(
            agent_id=config.agent_id,
            session_id=_text("session_id", session_id, 500),
            type=request.operation or "",
            priority=int(request.priority),  # type: ignore[arg-type]
            config=_config(request, seconds),
        )
        return Judged(message=message, agent=request.agent, timeout_seconds=seconds)


def _config(request: DelegateRequest, seconds: float) -> pb.TaskConfig:
    also = request.also
    message = pb.TaskConfig(
        parameters=struct_of(request.parameters),
        timeout_ns=nanoseconds(seconds),
        # One of our own where none is given: a request whose answer was lost is sent again, and must not be run twice.
        key=_text("key", also["key"], 500) if "key" in also else f"client-{uuid.uuid4().hex}",
        resume=_text("resume", also.get("resume", ""), 200),
        idle_ns=nanoseconds(milliseconds("idle", also["idle"]) / 1000) if "idle" in also else 0,
    )
    accept = also.get("accept", [])
    if not isinstance(accept, list | tuple) or not all(isinstance(one, str) for one in accept):
        raise DelegateError("accept must be a list of commands.", advice='E.g. ["pytest -q"].')
    message.accept.extend(accept)
    if "budget" in also:
        if not isinstance(also["budget"], Mapping):
            raise DelegateError("budget must be an object.", advice='E.g. {"tokens": 10000}.')
        message.budget.CopyFrom(struct_of(also["budget"]))
    return message


def _text(name: str, value: object, most: int) -> str:
    if not isinstance(value, str) or len(value) > most or "\0" in value:
        raise DelegateError(f"{name} must be text of at most {most} characters.")
    try:
        value.encode()
    except UnicodeError:
        raise DelegateError(f"{name} holds half a character.") from None
    return value
