"""`AgentService` of `tasks.proto`: agents in any language register, open one stream, and receive work over it.

A registered agent with an open stream is in the directory like any other (`name.operation`). An agent is lost when its stream breaks, or
when it is silent for twice the heartbeat; its work then fails as AGENT_UNAVAILABLE. Agents are untrusted: unknown ids, second answers,
negative sums and floods change nothing."""

import asyncio
import contextlib
import hmac
import logging
import secrets
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from remit.agents.proto.v1 import tasks_pb2 as pb
from remit.agents.proto.v1 import tasks_pb2_grpc as rpc
from remit.core.agents import ASSISTANT, BUILTIN_TARGETS, ROLES, AgentSpec, WorkspaceKind, agent_name
from remit.core.delegate_requests import parts_of
from remit.core.delegation import ROOT_CALLER
from remit.core.errors import Misused, Refused, RemitError
from remit.core.jsonable import clean_text
from remit.core.policy import Effect
from remit.core.settings import ServeSettings
from remit.runtime.output_schema import check_schema
from remit.server.authenticator import Authenticator
from remit.server.grpc.auth_interceptor import current_call
from remit.server.grpc.remote_agents import Instance, RemoteAgent, handle_message
from remit.server.service import Service
from remit.server.tokens import Permission, Principal
from remit.system.protobuf_values import dict_of, nanoseconds, seconds
from remit.system.threads import off_loop

if TYPE_CHECKING:
    from remit.app import Remit
    from remit.runtime.local_context import LocalRun

log = logging.getLogger("remit.grpc")

HELLO_SECONDS = 10.0
"""A stream must identify its agent within this time."""
MOST_INSTANCES = 1000
MOST_OF_ONE = 200
"""Agents of one principal."""
MOST_OPERATIONS = 100
MOST_SLOTS = 1000
_RESERVED = frozenset({ROOT_CALLER, ASSISTANT, *BUILTIN_TARGETS, *ROLES})
_ENCODING = ("utf-8", "surrogatepass")


class Registry(rpc.AgentServiceServicer):
    """Lives as long as its server."""

    def __init__(self, service: Service, authenticator: Authenticator, settings: ServeSettings) -> None:
        self._remit: Remit = service.remit
        self._authenticator = authenticator
        self._heartbeat = settings.heartbeat_seconds
        self._instances: dict[str, Instance] = {}
        self._sweeping: asyncio.Task[Any] | None = None

    # ---- registration

    async def Register(self, request: pb.RegisterRequest, context: Any) -> pb.RegisterResponse:
        """An agent that registers again, after its stream broke, replaces itself."""
        principal, name = current_call().principal, _one_part(request.name, "name")
        _check_allowed(principal, ())
        operations = await off_loop(_operations, request, name)
        _check_allowed(principal, [spec.name for spec in operations.values()])
        slots = _slots(request)
        self._free_name(name, principal)
        theirs = sum(one.principal == principal.name for one in self._instances.values())
        if len(self._instances) >= MOST_INSTANCES or theirs >= MOST_OF_ONE:
            raise Refused("Too many agents are registered already.", code="QUEUE_FULL", advice="Unregister those that are not needed.")
        secret = f"rma_{secrets.token_urlsafe(32)}"
        instance = Instance(
            agent_id=f"agent_{secrets.token_hex(8)}",
            name=name,
            principal=principal.name,
            secret_digest=_digest(secret),
            slots=slots,
            operations={short: replace(spec, slots=slots) for short, spec in operations.items()},
            heard_at=time.monotonic(),
            free=asyncio.Semaphore(slots),
        )
        self._instances[instance.agent_id] = instance
        if self._sweeping is None or self._sweeping.done():
            self._sweeping = self._remit.engine.spawn(self._sweep())
        return pb.RegisterResponse(agent_id=instance.agent_id, secret=secret, heartbeat_ns=nanoseconds(self._heartbeat))

    def _free_name(self, name: str, principal: Principal) -> None:
        """A registered agent does not replace or extend an agent of the project, or of another principal. Raises `Refused`."""
        registered = [one for one in self._instances.values() if one.name.casefold() == name.casefold()]
        for old in registered:
            if old.principal == principal.name and old.name == name:
                self._lose(old, "it registered again")
        known = [spec.source for spec in self._remit.directory.specs() if parts_of(spec.name)[0].casefold() == name.casefold()]
        if known or name.casefold() in _RESERVED or any(one.agent_id in self._instances for one in registered):
            where = f" ({known[0]})" if known else ""
            raise Refused(f"There is an agent {name} already{where}.", code="NAME_TAKEN", advice="Register under another name.")

    async def Heartbeat(self, request: pb.HeartbeatRequest, context: Any) -> pb.HeartbeatResponse:
        self._instance(request.agent_id, request.secret).heard_at = time.monotonic()
        return pb.HeartbeatResponse()

    async def Unregister(self, request: pb.UnregisterRequest, context: Any) -> pb.UnregisterResponse:
        """It gets no more work and leaves the directory; it may finish what it has over its stream."""
        instance = self._instance(request.agent_id, request.secret)
        self._delist(instance)
        instance.is_leaving = True
        if not instance.works:
            self._lose(instance, "it left")
        return pb.UnregisterResponse()

    # ---- the stream of one agent

    async def Work(self, request_iterator: AsyncIterator[pb.AgentMessage], context: Any) -> AsyncIterator[pb.WorkMessage]:
        instance = await self._read_hello(request_iterator)
        if instance.outbox is not None or instance.is_leaving:
            raise Misused("This agent has a stream already.", advice="Register again after a stream broke.")
        outbox = instance.outbox = asyncio.Queue()
        outbox.put_nowait(pb.WorkMessage(welcome=pb.Welcome(agent_id=instance.agent_id)))
        reading = asyncio.create_task(self._read(instance, outbox, request_iterator))
        try:
            for short, spec in instance.operations.items():
                self._remit.register(RemoteAgent(spec, instance, short, self._token_for))
            log.info("%s serves as %s, by %s", instance.agent_id, instance.name, instance.principal)
            while (message := await outbox.get()) is not None:
                yield message
        finally:
            reading.cancel()
            self._lose(instance, "it left" if instance.is_leaving else "its stream broke")

    async def _read_hello(self, messages: AsyncIterator[pb.AgentMessage]) -> Instance:
        first: pb.AgentMessage | None = None
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(HELLO_SECONDS):
                first = await anext(messages, None)
        if first is None or first.WhichOneof("message") != "hello":
            raise Misused("The first message of a stream must identify the agent.", advice="Send hello, with agent_id and secret.")
        instance = self._instance(first.hello.agent_id, first.hello.secret)
        instance.heard_at = time.monotonic()
        return instance

    async def _read(self, instance: Instance, outbox: Any, messages: AsyncIterator[pb.AgentMessage]) -> None:
        """Until its stream ends or has an unreadable message."""
        try:
            async for message in messages:
                instance.heard_at = time.monotonic()
                handle_message(instance, message)
                if instance.is_leaving and not instance.works:
                    return
                await asyncio.sleep(0)  # a flood of messages must not occupy the loop
        finally:
            outbox.put_nowait(None)

    # ---- instances

    def _instance(self, agent_id: str, secret: str) -> Instance:
        """Raises `Misused`, with the same message for a wrong id, secret or principal."""
        instance = self._instances.get(agent_id)
        is_it = hmac.compare_digest(_digest(secret), instance.secret_digest if instance is not None else b"\0" * 32)
        if instance is None or not is_it or current_call().principal.name != instance.principal:
            raise Misused("No such agent is registered, or the secret is wrong.", code="INVALID_TARGET", advice="Register (again).")
        return instance

    def _delist(self, instance: Instance) -> None:
        if instance.outbox is not None and not instance.is_leaving:
            for spec in instance.operations.values():
                self._remit.unregister(spec.name)

    def _lose(self, instance: Instance, why: str) -> None:
        if self._instances.pop(instance.agent_id, None) is not None:
            log.info("%s, %s, is gone: %s", instance.agent_id, instance.name, why)
            self._delist(instance)
            instance.end(why)

    async def _sweep(self) -> None:
        """Removes silent agents: a machine that is switched off closes no connection."""
        while self._instances:
            await asyncio.sleep(self._heartbeat / 4)
            silence = 2 * self._heartbeat
            for instance in list(self._instances.values()):
                if instance.heard_at < time.monotonic() - silence:
                    self._lose(instance, f"it was silent for {silence:g} s")

    def _token_for(self, running: "LocalRun") -> str:
        """With it the agent can delegate in turn."""
        with contextlib.suppress(RemitError):
            return self._authenticator.token_for(running)
        return ""


def _digest(secret: str) -> bytes:
    return sha256(secret.encode(*_ENCODING)).digest()


# ---- declarations of agents, which are untrusted


def _check_allowed(principal: Principal, names: Sequence[str]) -> None:
    """Raises `Refused`."""
    if not principal.may(Permission.SERVE) or principal.parent is not None:
        advice = "`remit token new NAME --may serve` grants it."
        raise Refused(f"{principal.name} may not serve agents.", code="FORBIDDEN", advice=advice)
    for name in names:
        if not principal.grants.may_use(name):
            allowed = ", ".join(principal.grants.agents or ())
            raise Refused(f"{principal.name} may not serve {name}.", code="FORBIDDEN", advice=f"It was granted {allowed}.")


def _operations(message: pb.RegisterRequest, name: str) -> dict[str, AgentSpec]:
    """By operation. Raises `Misused`. Checks schemas: called off the event loop."""
    if not 1 <= len(message.operations) <= MOST_OPERATIONS:
        advice = "An operation with an empty name is the agent itself."
        raise Misused(f"An agent offers 1 to {MOST_OPERATIONS} operations, not {len(message.operations)}.", advice=advice)
    found: dict[str, AgentSpec] = {}
    for operation in message.operations:
        short = _one_part(operation.name, "an operation") if operation.name else ""
        if short in found:
            raise Misused(f"The operation {short!r} is offered twice.", advice="Name each once.")
        if operation.timeout_ns < 0:
            raise Misused(f"timeout_ns of {operation.name!r:.80} is negative.", advice="Leave it out, or send a positive number.")
        found[short] = AgentSpec(
            name=f"{name}.{short}" if short else name,
            description=clean_text(operation.description or message.description)[:1000],
            timeout_seconds=seconds(operation.timeout_ns),
            workspace=WorkspaceKind.NONE,
            parameters_schema=_schema(operation),
            kind="remote",
            effects=_effects(operation),
            source=f"registered:{name}",
        )
    return found


def _slots(message: pb.RegisterRequest) -> int:
    if not 0 <= message.slots <= MOST_SLOTS:
        raise Misused(f"slots must be between 1 and {MOST_SLOTS}, not {message.slots}.", advice="0 is 1.")
    return message.slots or 1


def _one_part(name: str, what: str) -> str:
    if "." in name:
        raise Misused(f"{what} {name!r:.80} has a dot in it.", advice="images with the operation resize is found as images.resize.")
    return agent_name(name)


def _schema(operation: pb.Operation) -> dict[str, Any]:
    try:
        schema = check_schema(dict_of(operation.parameters_schema)) if operation.parameters_schema.fields else {}
    except Misused as error:
        fault = error.message.replace("output_schema", "parameters_schema")
        raise Misused(f"{operation.name}: {fault}", advice="Write a JSON schema of the parameters.") from None
    if schema.get("type", "object") != "object" or not isinstance(schema.get("properties", {}), dict):
        raise Misused(f"{operation.name}: parameters_schema must describe an object.", advice='{"type": "object", "properties": {…}}')
    return {"type": "object", "properties": {}, **schema}


def _effects(operation: pb.Operation) -> tuple[Effect, ...]:
    try:
        return tuple(dict.fromkeys(Effect(effect) for effect in operation.effects))
    except ValueError as error:
        raise Misused(f"effects: {error}.", advice=f"Allowed: {', '.join(Effect)}.") from None
