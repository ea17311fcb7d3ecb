"""pydantic-ai both ways: its agent delegates with our tool, and an `@agent` function runs it."""

import asyncio

from pydantic_ai import Agent
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

from remit import Context, Remit, agent, pydantic_ai_toolset
from remit.testing import Call, Say, ScriptedModels


async def main() -> None:
    read = Call("delegate", target="worker", operation="read_file", parameters={"path": "README.md"})
    async with ScriptedModels([read, Say("It counts to three.")]) as models, Remit.open(".") as remit:
        # in place of a real one: Agent("anthropic:…", …)
        model = OpenAIChatModel("scripted", provider=OpenAIProvider(base_url=models.openai_url, api_key="none"))
        reader: Agent[None, str] = Agent(model, instructions="Answer from the files.", toolsets=[pydantic_ai_toolset(remit)])
        answer = await reader.run("What is in README.md?")
        print(answer.output)

        @agent("reader", timeout=30)
        async def read_files(ctx: Context, task: str) -> str:
            run = await reader.run(task)
            ctx.spend(tokens=run.usage.total_tokens)
            return run.output

        remit.register(read_files)
        done = await remit.delegate("reader", task="What is in the README?")
        print(done.status, done.data, sep=": ")
        for record in await remit.tree(done.session_id):
            print("  " * record.depth + record.agent)


if __name__ == "__main__":
    asyncio.run(main())
