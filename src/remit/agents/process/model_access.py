"""Access of a built-in agent in its own process to the models of the Remit process, which has their keys and draws their cost."""

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from remit.agents.remote_context import RemoteBackend
from remit.core.context import Context
from remit.core.errors import Misused
from remit.core.jsonable import to_jsonable
from remit.core.model_messages import Answer, EndReason, Reply, SpendSink

if TYPE_CHECKING:
    from remit.models.questions import TextModel

MAX_QUESTIONS, QUESTIONS_AT_ONCE = 64, 4
"""Limits of one worker. Few at once, as each draws on the budget only when answered."""
MAX_QUESTION_CHARACTERS = 1_000_000
"""Including its schema."""


class ModelService:
    """Answers the questions of one worker."""

    def __init__(self, ctx: Context, models: "TextModel") -> None:
        self._ctx = ctx
        self._models = models
        self._questions = 0
        self._asking = asyncio.Semaphore(QUESTIONS_AT_ONCE)

    async def write(self, prompt: str, instructions: str = "", schema: dict[str, Any] | None = None) -> Any:
        if not isinstance(prompt, str) or not isinstance(instructions, str) or not isinstance(schema, dict | None):
            raise Misused("A question to a model must be text.")
        if len(prompt) + len(instructions) + len(str(schema or "")) > MAX_QUESTION_CHARACTERS:
            raise Misused(f"A question to a model has at most {MAX_QUESTION_CHARACTERS:,} characters.", advice="Ask about less at once.")
        if self._questions >= MAX_QUESTIONS:
            raise Misused(f"More than {MAX_QUESTIONS} questions to a model.", advice="Ask less, or delegate to a model agent.")
        self._questions += 1
        async with self._asking:
            asked = await self._models.write(self._ctx, prompt, instructions=instructions, schema=schema)
        return {
            "text": asked.reply.text,
            "model": asked.reply.model,
            "ended": str(asked.ended),
            "input_tokens": asked.input_tokens,
            "output_tokens": asked.output_tokens,
            "cost": asked.cost,
        }


class RemoteModels:
    """The models of the Remit process, for an agent in its own process."""

    def __init__(self, backend: RemoteBackend) -> None:
        self._backend = backend

    def is_configured(self) -> bool:
        return bool(self._backend.answers.get("has_model"))

    async def write(self, sink: SpendSink, prompt: str, *, instructions: str = "", schema: Mapping[str, Any] | None = None) -> Answer:
        """The Remit process draws the cost, not `sink`."""
        answer = await self._backend.call("write", {"prompt": prompt, "instructions": instructions, "schema": to_jsonable(schema)})
        reply = Reply(text=answer.pop("text"), model=answer.pop("model"))
        return Answer(reply=reply, ended=EndReason(answer.pop("ended")), **answer)


def models_of(ctx: Context) -> "TextModel | None":
    """The models of the Remit process, for a function in its own process. None if none is configured."""
    backend: object = ctx.backend
    models = RemoteModels(backend) if isinstance(backend, RemoteBackend) else None
    return models if models is not None and models.is_configured() else None
