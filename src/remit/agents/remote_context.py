"""The context of an agent in another process: `RemoteBackend` there, `ContextService` in the Remit process, one table of operations.

The table is derived from `ContextOperations`: this module only defines how values of each type are encoded."""

import asyncio
import functools
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import fields
from inspect import iscoroutinefunction
from types import NoneType
from typing import Any, NamedTuple, cast, get_args, get_origin, get_type_hints

from pydantic import TypeAdapter, ValidationError

from remit.agents.rpc import Calls
from remit.core.context import Context, ContextBackend, ContextFacts, ContextFiles, ContextOperations, Handle
from remit.core.errors import Failed, Misused, RemitError
from remit.core.events import Event, EventKind
from remit.core.jsonable import to_jsonable
from remit.core.request import Request
from remit.core.result import Return
from remit.system.context_files import CONTEXT_FOLDER, context_files

# ---- values


class Codec(NamedTuple):
    """Encoding of one type. Decoded values come from an untrusted process: `decode` raises `Misused`."""

    encode: Callable[[Any], Any]
    decode: Callable[[Any], Any]


_REQUEST_FIELDS = frozenset(f.name for f in fields(Request) if f.compare)


def _request(wire: object) -> Request:
    if not isinstance(wire, Mapping) or not isinstance(wire.get("agent"), str) or not isinstance(wire.get("parameters"), Mapping):
        raise Misused("A request needs an agent and its parameters.", advice='Use ctx.delegate("agent", name=value).')
    unknown = wire.keys() - _REQUEST_FIELDS
    if unknown:
        raise Misused(f"A request has no field {', '.join(sorted(map(str, unknown)))}.")
    return Request(**{name: value for name, value in wire.items() if value is not None})


def _as_is(value: Any) -> Any:
    return value


_CODECS: dict[Any, Codec] = {
    **dict.fromkeys((Any, NoneType, Handle), Codec(to_jsonable, _as_is)),
    Request: Codec(lambda request: to_jsonable(request.to_dict()), _request),
    Return: Codec(Return.to_dict, Return.from_dict),
}
"""Types with their own form; values of any other type are encoded and checked by pydantic, lists of these one by one."""


def _codec_of(hint: Any) -> Codec:
    if hint in _CODECS:
        return _CODECS[hint]
    item = _CODECS.get(next(iter(get_args(hint)), None))
    if item is not None and get_origin(hint) in (list, Sequence):
        return Codec(lambda values: [item.encode(one) for one in values], lambda wire: [item.decode(one) for one in wire])
    adapter = functools.cache(functools.partial(TypeAdapter[Any], hint))

    def decode(value: object) -> Any:
        try:
            return adapter().validate_python(value)
        except ValidationError as error:
            raise Misused(f"{value!r:.60} is invalid: {error.errors()[0]['msg']}.") from None

    def encode(value: Any) -> Any:
        return to_jsonable(value) if get_origin(hint) is Mapping else adapter().dump_python(value, mode="json")

    return Codec(encode, decode)


class Operation(NamedTuple):
    """One operation of a context on the wire."""

    name: str
    parameters: dict[str, Codec]
    reply: Codec
    returns_handle: bool
    is_async: bool
    is_notification: bool

    @classmethod
    def of(cls, name: str, method: Callable[..., Any]) -> "Operation":
        hints = get_type_hints(method)
        returned = hints.pop("return")
        made = cls(
            name=name,
            parameters={parameter: _codec_of(hint) for parameter, hint in hints.items()},
            reply=_codec_of(returned),
            returns_handle=returned is Handle,
            is_async=iscoroutinefunction(method),
            is_notification=returned is NoneType and not iscoroutinefunction(method),
        )
        if made.is_blocking and made.parameters:
            raise TypeError(f"ContextOperations.{name} has arguments and a result: declare it `async`.")
        return made

    @property
    def is_blocking(self) -> bool:
        return not self.is_async and not self.is_notification

    def encode(self, arguments: Sequence[Any]) -> dict[str, Any]:
        return {name: codec.encode(value) for (name, codec), value in zip(self.parameters.items(), arguments, strict=True)}

    def decode(self, body: Mapping[str, Any]) -> list[Any]:
        if body.keys() != self.parameters.keys():
            raise Misused(f"{self.name} takes {', '.join(self.parameters) or 'no arguments'}, not {', '.join(body) or 'nothing'}.")
        return [codec.decode(body[name]) for name, codec in self.parameters.items()]


OPERATIONS = {name: Operation.of(name, method) for name, method in vars(ContextOperations).items() if not name.startswith("_")}


@functools.cache
def facts_reader() -> TypeAdapter[ContextFacts]:
    """Takes some milliseconds to make: a fork server makes it before it forks."""
    return TypeAdapter(ContextFacts)


# ---- in the process of the agent


class RemoteBackend:
    """A context backend over a connection; the operations come from the table.

    A notification is not answered: if it was refused, the next operation raises the refusal."""

    def __init__(self, calls: Calls, facts: Mapping[str, Any]) -> None:
        self.calls = calls
        self.answers = dict(facts)
        known = facts_reader().validate_python({name: facts[name] for name in ContextFacts._fields})
        self.delegation, self.root, self.workspace, self.repair, self.saved, _ = known
        self._refusal: RemitError | None = None

    def context(self) -> Context:
        return Context(cast("ContextBackend", self))

    @property
    def hand_in(self) -> bool:
        return time.monotonic() >= self.delegation.deadline.soft_at  # processes of one machine share this clock

    async def wait_hand_in(self) -> None:
        await asyncio.sleep(self.delegation.deadline.soft_at - time.monotonic())

    def context_files(self, level: int, language: str) -> ContextFiles:
        return context_files(self.root / CONTEXT_FOLDER, level, language)

    def facts(self) -> ContextFacts:
        return ContextFacts(self.delegation, self.root, self.workspace, self.repair, self.saved, self.environment())

    def remaining(self) -> float:
        return self.delegation.deadline.remaining(time.monotonic())

    def printed(self, text: str) -> None:
        """Nothing to do: the output of this process is read from outside."""

    def abandoned(self, what: str) -> Callable[[], None]:
        """Nothing to do: abandoned code dies with this process."""
        return lambda: None

    async def checkpoint(self, value: Any) -> None:
        await self._call(OPERATIONS["checkpoint"], value)
        self.saved = to_jsonable(value)

    def __getattr__(self, name: str) -> Any:
        operation = OPERATIONS.get(name)
        if operation is None:
            raise AttributeError(name)
        send = self._call if operation.is_async else self._notify if operation.is_notification else self._ask
        return functools.partial(send, operation)

    async def call(self, name: str, body: dict[str, Any]) -> Any:
        self._raise_refusal()
        return await self.calls.call(name, body)

    async def _call(self, operation: Operation, *arguments: Any) -> Any:
        value = await self.call(operation.name, operation.encode(arguments))
        return RemoteHandle(self.call, value) if operation.returns_handle else operation.reply.decode(value)

    def _notify(self, operation: Operation, *arguments: Any) -> None:
        self._raise_refusal()
        self.calls.notify(operation.name, operation.encode(arguments))

    def _ask(self, operation: Operation) -> Any:
        if operation.name in self.answers:
            return operation.reply.decode(self.answers[operation.name])
        return operation.reply.decode(self.calls.call_blocking(operation.name, {}))

    def _raise_refusal(self) -> None:
        refusal, self._refusal = self._refusal, None
        if refusal is not None:
            raise refusal

    def refuse(self, error: RemitError) -> None:
        """Called by the connection: a notification was refused."""
        self._refusal = error


class RemoteHandle:
    """A delegation that was started over a connection."""

    def __init__(self, call: Callable[[str, dict[str, Any]], Awaitable[Any]], session_id: str) -> None:
        self._call = call
        self.session_id = session_id

    async def result(self) -> Return:
        return Return.from_dict(await self._call("result", {"session_id": self.session_id}))

    async def stream(self) -> AsyncIterator[Event]:
        number = await self._call("stream", {"session_id": self.session_id})
        while (event := await self._call("next", {"stream": number})) is not None:
            yield Event(**{**event, "kind": EventKind(event["kind"])})

    async def cancel(self, reason: str = "") -> list[Mapping[str, Any]]:
        nodes: list[Mapping[str, Any]] = await self._call("stop", {"session_id": self.session_id, "reason": reason})
        return nodes


# ---- in the Remit process

STREAMS_AT_ONCE = 256


class ContextService:
    """Answers the context calls of one agent in another process, and those on delegations it started."""

    def __init__(self, backend: ContextBackend, more: Mapping[str, Callable[..., Awaitable[Any]]] | None = None) -> None:
        """`more`: further calls beside the operations of a context."""
        self._backend = backend
        self._handles: dict[str, Handle] = {}
        self._streams: dict[int, AsyncIterator[Event]] = {}
        self._more: dict[str, Callable[..., Awaitable[Any]]] = {
            "result": self._result,
            "stream": self._stream,
            "next": self._next,
            "stop": self._stop,
            **(more or {}),
        }

    async def answer(self, name: str, body: Mapping[str, Any]) -> Any:
        """Raises only remit errors."""
        try:
            if name in self._more:
                return await self._more[name](**body)
            operation = _operation(name)
            value = getattr(self._backend, name)(*operation.decode(body))
            if operation.is_async:
                value = await value
            if operation.returns_handle:
                self._handles[value.session_id] = value
                return value.session_id
            return operation.reply.encode(value)
        except Exception as error:  # noqa: BLE001 - any failure caused by an untrusted process is answered with an error
            raise _remit_error(error) from None

    def take(self, name: str, body: Mapping[str, Any]) -> None:
        """Handle a notification. Raises only remit errors."""
        operation = _operation(name)
        if not operation.is_notification:
            raise Misused(f"{name} must be called: it has an answer.")
        try:
            getattr(self._backend, name)(*operation.decode(body))
        except Exception as error:  # noqa: BLE001 - as above
            raise _remit_error(error) from None

    async def _result(self, session_id: str) -> Any:
        return (await self._handle(session_id).result()).to_dict()

    async def _stream(self, session_id: str) -> int:
        if len(self._streams) >= STREAMS_AT_ONCE:
            raise Misused(f"More than {STREAMS_AT_ONCE} streams are open.", advice="Read each to its end.")
        number = max(self._streams, default=0) + 1
        self._streams[number] = self._handle(session_id).stream()
        return number

    async def _next(self, stream: int) -> Any:
        events = self._streams.get(stream)
        event = await anext(events, None) if events is not None else None
        if event is None:
            self._streams.pop(stream, None)
        return event

    async def _stop(self, session_id: str, reason: str = "") -> Any:
        return await self._handle(session_id).cancel(reason)

    def _handle(self, session_id: str) -> Handle:
        try:
            return self._handles[session_id]
        except (KeyError, TypeError):
            raise Misused(f"{session_id!r:.100} was not started by this agent.", advice="Use the handle that ctx.start gave.") from None


def _operation(name: str) -> Operation:
    operation = OPERATIONS.get(name)
    if operation is None:
        raise Misused(f"A context has no operation {name!r:.60}.")
    return operation


def _remit_error(error: Exception) -> RemitError:
    if isinstance(error, RemitError):
        return error
    if isinstance(error, TypeError):  # arguments that the operation does not accept
        return Misused(f"The context was misused: {error}")
    return Failed(f"{type(error).__name__}: {error}")


def as_failed(error: RemitError) -> Failed:
    """A refusal or unavailability that an agent did not handle is a failure of the agent."""
    failed = Failed(error.message, code=error.code, advice=error.advice)
    failed.traceback_text = error.traceback_text
    return failed
