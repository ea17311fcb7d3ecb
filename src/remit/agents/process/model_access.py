"""Access of a built-in agent in its own process to the models of the Remit process, which has their keys and draws their cost."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any

from pydantic import TypeAdapter

from remit.agents.remote_context import RemoteBackend
from remit.core.context import Context
from remit.core.jsonable import to_jsonable
from remit.core.model_messages import Answer, SpendSink

if TYPE_CHECKING:
    from remit.models.questions import TextModel

QUESTIONS_AT_ONCE = 4
"""Of one worker. Each draws on the budget only when it is answered."""


def answer_questions(ctx: Context, models: "TextModel") -> Callable[..., Awaitable[Any]]:
    """Answers the questions of one worker."""
    asking = asyncio.Semaphore(QUESTIONS_AT_ONCE)

    async def write(prompt: str, instructions: str = "", schema: dict[str, Any] | None = None) -> Answer:
        async with asking:
            return await models.write(ctx, prompt, instructions=instructions, schema=schema)

    return write


class RemoteModels:
    """The models of the Remit process, for an agent in its own process."""

    def __init__(self, backend: RemoteBackend) -> None:
        self._backend = backend

    def is_configured(self) -> bool:
        return bool(self._backend.answers.get("has_model"))

    async def write(self, sink: SpendSink, prompt: str, *, instructions: str = "", schema: Mapping[str, Any] | None = None) -> Answer:
        """The Remit process draws the cost, not `sink`."""
        answer = await self._backend.call("write", {"prompt": prompt, "instructions": instructions, "schema": to_jsonable(schema)})
        return TypeAdapter(Answer).validate_python(answer)


def models_of(ctx: Context) -> "TextModel | None":
    """The models of the Remit process, for a function in its own process. None if none is configured."""
    backend: object = ctx.backend
    models = RemoteModels(backend) if isinstance(backend, RemoteBackend) else None
    return models if models is not None and models.is_configured() else None
