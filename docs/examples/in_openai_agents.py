"""The OpenAI Agents SDK both ways: its agent delegates with our tool, and an `@agent` function runs it."""

import asyncio

from openai import AsyncOpenAI

from agents import Agent, OpenAIResponsesModel, RunConfig, Runner
from remit import Context, Remit, agent, openai_agents_tool
from remit.testing import Call, Say, ScriptedModels


async def main() -> None:
    read = Call("delegate", target="worker", operation="read_file", parameters={"path": "README.md"})
    async with ScriptedModels([read, Say("It counts to three.")]) as models, Remit.open(".") as remit:
        # in place of a real one: Agent(model="gpt-…", …)
        model = OpenAIResponsesModel("scripted", AsyncOpenAI(base_url=models.openai_url, api_key="none"))
        reader: Agent[None] = Agent(name="Reader", model=model, instructions="Answer from the files.", tools=[openai_agents_tool(remit)])
        answer = await Runner.run(reader, "What is in README.md?", run_config=RunConfig(tracing_disabled=True))
        print(answer.final_output)

        @agent("reader", timeout=30)
        async def read_files(ctx: Context, task: str) -> str:
            run = await Runner.run(reader, task, run_config=RunConfig(tracing_disabled=True))
            ctx.spend(tokens=run.context_wrapper.usage.total_tokens)
            return str(run.final_output)

        remit.register(read_files)
        done = await remit.delegate("reader", task="What is in the README?")
        print(done.status, done.data, sep=": ")
        for record in await remit.tree(done.session_id):
            print("  " * record.depth + record.agent)


if __name__ == "__main__":
    asyncio.run(main())
