"""LangGraph both ways: a graph delegates with our tool, and an `@agent` function runs it."""

import asyncio

from langchain.agents import create_agent
from langchain_core.callbacks import get_usage_metadata_callback
from langchain_core.messages import HumanMessage
from langchain_openai import ChatOpenAI

from remit import Context, Remit, agent, langchain_tool
from remit.testing import Call, Say, ScriptedModels


async def main() -> None:
    read = Call("delegate", target="worker", operation="read_file", parameters={"path": "README.md"})
    async with ScriptedModels([read, Say("It counts to three.")]) as models, Remit.open(".") as remit:
        # in place of a real one: create_agent("anthropic:…", …)
        model = ChatOpenAI(model="scripted", base_url=models.openai_url, api_key="none")
        reader = create_agent(model, tools=[langchain_tool(remit)], system_prompt="Answer from the files.")
        state = await reader.ainvoke({"messages": [HumanMessage("What is in README.md?")]})
        print(state["messages"][-1].text)

        @agent("reader", timeout=30)
        async def read_files(ctx: Context, task: str) -> str:
            with get_usage_metadata_callback() as used:
                state = await reader.ainvoke({"messages": [HumanMessage(task)]})
            ctx.spend(tokens=sum(one["total_tokens"] for one in used.usage_metadata.values()))
            return str(state["messages"][-1].text)

        remit.register(read_files)
        done = await remit.delegate("reader", task="What is in the README?")
        print(done.status, done.data, sep=": ")
        for record in await remit.tree(done.session_id):
            print("  " * record.depth + record.agent)


if __name__ == "__main__":
    asyncio.run(main())
