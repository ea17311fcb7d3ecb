"""An agent that is a language model, from a file: what it may reach, and the form of what it hands back. The model is a script here."""

import asyncio
import json
import os
from pathlib import Path

from remit import Remit
from remit.testing import Call, ModelRequest, Reply, Say, ScriptedModels, valid_return

FILE = """\
---
description: Says how old what is written in a file is.
tools: worker.read_file
remit:
  kind: model
  timeout: 60
  output_schema: {type: object, properties: {years: {type: integer}}, required: [years]}
---
You date texts. Read the file that you are asked about, then hand back its age in years as data.
"""


def answer(request: ModelRequest) -> Say:
    """What a model would write: a return with its data."""
    text = valid_return(request)
    head, _, rest = text.partition("{")
    return Say(head + '{"data": ' + json.dumps({"years": 400}) + "," + rest)


def written(path: str, text: str) -> None:
    place = Path(path)
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(text)


async def main() -> None:
    script = [
        Call("delegate", target="worker", operation="read_file", parameters={"path": "sonnet.txt"}),
        Call("delegate", target="worker", operation="delete_file", parameters={"path": "sonnet.txt"}),
        Reply(answer),
    ]
    async with ScriptedModels(script) as server:
        os.environ["SCRIPTED_KEY"] = "any"
        address = {"kind": "openai", "url": server.openai_url, "key_variable": "SCRIPTED_KEY"}
        async with Remit.open(".", settings={"model": "scripted", "models": {"scripted": address}}) as remit:
            done = await remit.delegate("dater", task="How old is sonnet.txt?")
            print(done.status, done.data)
            print([child.agent for child in await remit.children(done.session_id)])


if __name__ == "__main__":
    written(".remit/agents/dater.md", FILE)
    written("sonnet.txt", "Shall I compare thee to a summer's day?\n")
    asyncio.run(main())
