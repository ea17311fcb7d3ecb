"""An agent that answers in text, as a language model does: read by the ladder, asked once more if it is faulty."""

import asyncio
import json

from remit import Context, Remit, agent


def ask_a_model(prompt: str) -> str:
    """In place of a real one: prose at first, the contract when it is told what was wrong."""
    if "faults" not in prompt:
        return "I have had a look, and all is well."
    context = json.loads(prompt.partition("context: ")[2])
    answer = {
        "status": "completed",
        "summary": "Looked at the project. All is well.",
        "artifacts": [],
        "metadata": {name: context[name] for name in ("session_id", "delegation_depth", "delegation_path")} | {"agent_type": "looker"},
    }
    return f"Here it is.\n```json\n{json.dumps(answer)}\n```"


@agent("looker", timeout=30, answers="return")
async def looker(ctx: Context) -> str:
    prompt = f"Look at the project. context: {json.dumps(ctx.as_dict())}"
    if ctx.repair is not None:
        prompt = f"Your answer had faults: {'; '.join(ctx.repair.faults)}. {prompt}"
    return ask_a_model(prompt)


async def main() -> None:
    async with Remit.open(".", agents=[looker]) as remit:
        done = await remit.delegate("looker")
        print(done.status, done.summary, sep=": ")
        print(done.warnings[-1])


if __name__ == "__main__":
    asyncio.run(main())
