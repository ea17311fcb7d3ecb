"""An agent that asks a model, tried offline: the model is overloaded, answers, and at last never answers at all."""

import asyncio
import json
import os
import urllib.request

from remit import Remit, agent
from remit.testing import Fail, Say, ScriptedModels, Silence


@agent("poet", timeout=30, isolation="thread", retries=1)
def poet(about: str) -> str:
    """Asks the model behind OPENAI_BASE_URL; what it raises is its error, and it may be tried once more."""
    question = {"model": "any", "messages": [{"role": "user", "content": f"Two lines about {about}."}]}
    request = urllib.request.Request(f"{os.environ['OPENAI_BASE_URL']}/chat/completions", json.dumps(question).encode())
    with urllib.request.urlopen(request) as answer:
        return str(json.load(answer)["choices"][0]["message"]["content"])


async def main() -> None:
    script = {"a pond": [Fail(529), Say("An old pond. A frog leaps in.")], "the sea": [Silence()]}
    async with ScriptedModels(script) as models, Remit.open(".", agents=[poet]) as remit:
        os.environ["OPENAI_BASE_URL"] = models.openai_url
        done = await remit.delegate("poet", about="a pond")
        print(done.status, done.data, sep=": ")
        late = await remit.delegate("poet", about="the sea", timeout=0.5)
        print(late.status, late.errors[0].code, sep=": ")
        print([request.text for request in models.requests])


if __name__ == "__main__":
    asyncio.run(main())
