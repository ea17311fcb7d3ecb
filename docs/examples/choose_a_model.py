"""Two models, the second for when the first fails: here both are scripted, and the first is out of order."""

import asyncio

from remit import Context, Remit, agent
from remit.testing import Fail, Say, ScriptedModels


async def main() -> None:
    async with ScriptedModels([Fail(500, "out of order")]) as first, ScriptedModels([Say("An old pond.").using(1000, 200)]) as second:
        settings = {
            "model": ["house", "spare"],
            "models": {
                "house": {"kind": "openai", "url": first.openai_url, "model": "house-8b"},
                "spare": {"kind": "anthropic", "url": second.base_url, "model": "spare-1"},
            },
            "prices": {"spare": {"input": 2.0, "output": 10.0}},
        }

        @agent("poet", timeout=30)
        async def poet(ctx: Context, about: str) -> dict[str, str]:
            """Asks the model of the project; what it costs is drawn from the tree's budget."""
            asked = await remit.models.write(ctx, f"A line about {about}.")
            tried = "; ".join(f"{one.model}: {one.fault}" for one in asked.tried)
            return {"text": asked.reply.text, "by": asked.reply.model, "tried": tried, "cost": f"{asked.cost:.3f}"}

        async with Remit.open(".", agents=[poet], settings=settings) as remit:
            done = await remit.delegate("poet", about="a pond")
    for name, value in done.data.items():
        print(f"{name}: {value}")


if __name__ == "__main__":
    asyncio.run(main())
