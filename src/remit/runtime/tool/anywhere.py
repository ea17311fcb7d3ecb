"""The delegate tool for other frameworks: called anywhere, on any loop or none, within what they may show."""

import asyncio
import contextlib
import json
import os
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import CancelledError, Future
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from remit.core.agents import AgentSpec
from remit.core.errors import Misused, RemitError, Stopped
from remit.runtime.tool.catalogue import DelegateError
from remit.runtime.tool.request import DelegateRequest
from remit.runtime.tool.result import DelegateResult
from remit.runtime.tool.shortening import READ, SHOWN_CHARACTERS, Given, checked_limit, range_of, shortened, shortened_fault
from remit.runtime.tool.tool import DelegateTool, Office


@contextmanager
def needs(extra: str, *packages: str) -> Iterator[None]:
    """Around the imports of an extra. What is missing deeper down, inside of such a package, is its own to say."""
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in packages:
            raise
        name = (error.name or "").partition(".")[0]
        raise ModuleNotFoundError(f"{name} is not installed: pip install 'remit[{extra}]'", name=error.name) from None


_PARAMETERS = "What that operation takes, by name, as listed in this tool's description: a JSON object, written as text."


def strict(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Of an `inputSchema` without conditions."""
    needed = frozenset(schema.get("required", ()))
    properties = {name: one if name in needed else _or_null(one) for name, one in schema["properties"].items()}
    properties["parameters"] = {"type": "string", "description": _PARAMETERS}
    return {**schema, "properties": properties, "required": list(properties), "additionalProperties": False}


def _or_null(one: Mapping[str, Any]) -> dict[str, Any]:
    values = {"enum": [*one["enum"], None]} if "enum" in one else {}
    return {**one, **values, "type": [one["type"], "null"]}


LOOK_SECONDS = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What a call came to."""

    text: str
    """JSON, for the model; never above the limit of characters."""
    result: DelegateResult | None = None
    """None: the request was faulty, and nothing ran."""
    is_success: bool = False

    @property
    def is_fault(self) -> bool:
        return self.result is None


class Anywhere:
    def __init__(
        self, remit: Office, among: Callable[[AgentSpec], bool] | None, characters: int = SHOWN_CHARACTERS, *, is_strict: bool = False
    ) -> None:
        self.is_strict = is_strict
        self.tool = DelegateTool(remit, among)
        self._loop = remit.loop
        self._process = os.getpid()
        self._characters = checked_limit(characters)
        self._given = Given()
        self._drawn: tuple[tuple[AgentSpec, ...], dict[str, Any]] | None = None
        self._can_read = False
        """Whether what is left out of a result can be asked for by the same tool; as it was last announced."""
        self.announced()

    def announced(self) -> dict[str, Any]:
        """Name, description and `inputSchema` as the directory is now, without conditions: vendors of models take none."""
        specs = self.tool.catalogue.specs
        if self._drawn is None or self._drawn[0] is not specs:
            told = self.tool.plain_schema()
            self._drawn = (specs, {**told, "inputSchema": strict(told["inputSchema"])} if self.is_strict else told)
            self._can_read = any(spec.name == READ for spec in specs)
        return self._drawn[1]

    async def call(self, arguments: object) -> Answer:
        """Whatever a model wrote is answered. Cancelling the call cancels the delegation."""
        if asyncio.get_running_loop() is self._loop:
            self._must_be_at_home()
            return await self._called(arguments)
        return await asyncio.wrap_future(self._handed_over(arguments))

    def call_blocking(self, arguments: object) -> Answer:
        """The same for a thread that may wait; not the one of the loop itself, which would wait for ever."""
        with contextlib.suppress(RuntimeError):
            if asyncio.get_running_loop() is self._loop:
                raise Misused(
                    "A blocking call on the loop that is to carry it out would never end.",
                    advice="Await the call, or make it from another thread: await asyncio.to_thread(…).",
                )
        future = self._handed_over(arguments)
        try:
            return self._waited_for(future)
        except CancelledError:
            raise Stopped("The delegation around this call was stopped.") from None
        except BaseException:  # whatever interrupts the waiting thread cancels what it waits for
            future.cancel()
            raise

    def _handed_over(self, arguments: object) -> Future[Answer]:
        """To the loop of the `Remit`, in the context of whoever calls."""
        self._must_be_at_home()
        if not self._loop.is_running():
            raise _gone()
        return asyncio.run_coroutine_threadsafe(self._called(arguments), self._loop)

    def _waited_for(self, future: Future[Answer]) -> Answer:
        """A loop that ends at this very moment never answers: it is looked after."""
        while True:
            try:
                return future.result(timeout=LOOK_SECONDS)
            except TimeoutError:
                if future.done():
                    raise
                if not self._loop.is_running():
                    raise _gone() from None

    def _must_be_at_home(self) -> None:
        """After a fork the loop only looks as if it ran."""
        if os.getpid() != self._process:
            raise Misused("This process was forked off the one whose Remit this is.", advice="Delegate there, or open a Remit here.")

    async def _called(self, arguments: object) -> Answer:
        try:
            request = self.tool.read(_object(arguments))
            if (earlier := self._given.asked(request)) is not None:
                return await self._read_on(earlier, request)
            result = await self.tool.perform(request)
        except DelegateError as error:
            return Answer(text=shortened_fault(error, self._characters))
        self._given.note(result)
        return Answer(text=shortened(result, self._characters, can_read=self._can_read), result=result, is_success=result.success)

    async def _read_on(self, task_id: str, request: DelegateRequest) -> Answer:
        try:
            result = await self.tool.look(task_id)
        except RemitError as error:
            if isinstance(error, Misused) and error.code != "INVALID_TARGET":
                raise
            raise DelegateError(error.message, code=error.code, advice="Delegate it again.") from None  # it was deleted since
        return Answer(text=range_of(result, request.parameters, self._characters), result=result, is_success=True)


def _gone() -> Misused:
    return Misused("The loop of this Remit has ended.", advice="Keep it open while its tool is used.")


def _object(arguments: object) -> object:
    """Some vendors hand over text."""
    if not isinstance(arguments, str | bytes):
        return arguments
    if not arguments.strip():
        return {}
    try:
        read = json.loads(arguments)
    except (ValueError, RecursionError) as error:
        fault = str(error) if isinstance(error, ValueError) else "it is nested too deeply"
        raise DelegateError(f"The arguments are not JSON: {fault}.", advice="Write one JSON object.") from None
    if not isinstance(read, Mapping):
        raise DelegateError(f"The arguments must be a JSON object, not {type(read).__name__}.", advice='E.g. {"target": "worker", …}.')
    return read
