"""`Toolbox`: the delegate tool for any SDK of a model's vendor: its schema in each one's form, and `call(name, arguments)`.

    toolbox = Toolbox(remit)
    reply = await client.chat.completions.create(tools=toolbox.for_openai_chat(), …)
    for call in reply.choices[0].message.tool_calls:
        text = await toolbox.call(call.function.name, call.function.arguments)

Imports no SDK. For frameworks that have agents of their own see `pydantic_ai`, `openai_agents` and `langchain` beside it.
"""

from collections.abc import Callable, Mapping
from typing import Any

from remit.core.agents import AgentSpec
from remit.runtime.tool.anywhere import Anywhere
from remit.runtime.tool.catalogue import DelegateError
from remit.runtime.tool.shortening import SHOWN_CHARACTERS, shortened_fault
from remit.runtime.tool.tool import DelegateTool, Office

__all__ = ["Toolbox"]


class Toolbox:
    def __init__(
        self,
        remit: Office,
        among: Callable[[AgentSpec], bool] | None = None,
        *,
        characters: int = SHOWN_CHARACTERS,
        strict: bool = False,
    ) -> None:
        """Of an open `Remit`; `among`: which agents it offers; `characters`: at most so many of a result are given to the model; `strict`:
        the schema is one that strict modes take, in which parameters are JSON as text."""
        self._tool = Anywhere(remit, among, characters, is_strict=strict)
        self._characters = characters

    # ---- what the model is offered: drawn from the directory at each call

    def schema(self) -> dict[str, Any]:
        """JSON schema of the arguments; its title and description are the tool's name and words."""
        told = self._tool.announced()
        return {"title": told["name"], "description": told["description"], **told["inputSchema"]}

    def for_openai_chat(self) -> list[dict[str, Any]]:
        """`tools` of Chat Completions, and of the many servers that speak it."""
        is_strict = {"strict": True} if self._tool.is_strict else {}
        return [{"type": "function", "function": {**self._named(), "parameters": self._tool.announced()["inputSchema"], **is_strict}}]

    def for_openai_responses(self) -> list[dict[str, Any]]:
        """`tools` of the Responses API, which is strict unless it is told otherwise."""
        told = self._tool.announced()["inputSchema"]
        return [{"type": "function", **self._named(), "parameters": told, "strict": self._tool.is_strict}]

    def for_anthropic(self) -> list[dict[str, Any]]:
        """`tools` of the Messages API."""
        is_strict = {"strict": True} if self._tool.is_strict else {}
        return [{**self._named(), "input_schema": self._tool.announced()["inputSchema"], **is_strict}]

    def for_google(self) -> list[dict[str, Any]]:
        """`tools` of Gemini's `generate_content` (google-genai)."""
        return [{"function_declarations": [{**self._named(), "parameters_json_schema": self._tool.announced()["inputSchema"]}]}]

    # ---- what the model called

    async def call(self, name: str, arguments: Mapping[str, Any] | str | None) -> str:
        """The result as JSON text for the model. Also of what a model should not have done: that never raises.

        Callable from any loop. Several at once are `asyncio.gather`ed, which gives the results in the order of the calls.
        """
        if name != DelegateTool.name:
            return self._unknown(name)
        return (await self._tool.call(arguments)).text

    def call_blocking(self, name: str, arguments: Mapping[str, Any] | str | None) -> str:
        """`call` for a thread that may wait, while the loop of the `Remit` runs on another."""
        if name != DelegateTool.name:
            return self._unknown(name)
        return self._tool.call_blocking(arguments).text

    def _named(self) -> dict[str, Any]:
        told = self._tool.announced()
        return {"name": told["name"], "description": told["description"]}

    def _unknown(self, name: str) -> str:
        fault = f"There is no tool {str(name)[:80]!r}."
        error = DelegateError(fault, advice="The only tool is delegate: call that.", details={"tools": [DelegateTool.name]})
        return shortened_fault(error, self._characters)
