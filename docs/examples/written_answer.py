"""An answer that a model writes and whose citations are checked: here a scripted model, which says one thing too many."""

import asyncio
import json
import re
from pathlib import Path

from remit import Remit
from remit.testing import ModelRequest, Say, ScriptedModels

HANDBOOK = "# Tea\n\nGreen tea is brewed at 80 °C for two minutes. Hotter water makes green tea bitter.\n"


def model(request: ModelRequest) -> Say:
    """It is asked to write the answer from numbered passages."""
    passages = re.findall(r'number="(\d+)"[^>]*>\n([^<]*)', request.text)
    number = next(int(number) for number, text in passages if "Hotter water" in text)
    cited = [{"passage": number, "quote": "Hotter water makes green tea bitter"}]
    statements = [
        {"heading": "", "text": "Hotter water makes green tea bitter.", "citations": cited},
        {"heading": "", "text": "Everybody prefers black tea.", "citations": []},
    ]
    return Say(json.dumps({"statements": statements}))


async def main() -> None:
    async with ScriptedModels(model) as server:
        settings = {"model": "scripted", "models": {"scripted": {"kind": "openai", "url": server.openai_url, "model": "scripted"}}}
        async with Remit.open(".", settings=settings) as remit:
            done = await remit.delegate("researcher.deep_research", query="Why does green tea get bitter?")
    for sentence in done.data["sentences"]:
        print(f"{sentence['standing']}: {sentence['text']}")
    print([sentence["text"] for sentence in done.data["uncited"]])


if __name__ == "__main__":
    Path("handbook.md").write_text(HANDBOOK)
    asyncio.run(main())
