"""Any SDK or framework: the tool in its form, and each call answered with text for the model."""

import asyncio
import json
from typing import Any

from openai import AsyncOpenAI

from remit import DelegateError, DelegateTool, Remit
from remit.testing import Call, Say, ScriptedModels


async def answer(tool: DelegateTool, arguments: str) -> str:
    try:
        return (await tool.call(json.loads(arguments))).to_json()
    except DelegateError as error:  # nothing ran; the model can correct its call
        return json.dumps(error.to_dict())


async def main() -> None:
    read = Call("delegate", target="worker", operation="read_file", parameters={"path": "README.md"})
    async with ScriptedModels([read, Say("It counts to three.")]) as models, Remit.open(".") as remit:
        tool = DelegateTool(remit, among=lambda spec: spec.name == "worker.read_file")
        client = AsyncOpenAI(base_url=models.openai_url, api_key="none")  # in place of a real one: AsyncOpenAI()
        messages: list[Any] = [{"role": "user", "content": "What is in README.md?"}]
        while True:
            offer = tool.schema()
            function = {"name": offer["name"], "description": offer["description"], "parameters": offer["inputSchema"]}
            tools: Any = [{"type": "function", "function": function}]
            reply = (await client.chat.completions.create(model="scripted", messages=messages, tools=tools)).choices[0].message
            messages.append(reply)
            if not reply.tool_calls:
                break
            calls: list[Any] = list(reply.tool_calls)
            texts = await asyncio.gather(*(answer(tool, call.function.arguments) for call in calls))
            messages += [{"role": "tool", "tool_call_id": call.id, "content": text} for call, text in zip(calls, texts, strict=True)]
        print(reply.content)
        await client.close()


if __name__ == "__main__":
    asyncio.run(main())
