"""Two messages of one conversation with the assistant, heard as it answers. The model is a script here."""

import asyncio
from pathlib import Path

from remit import Conversations, Remit, ask
from remit.testing import Call, ModelRequest, Reply, Say, ScriptedModels


def answer(request: ModelRequest) -> Say | Call:
    """What a model would do: look with a worker, then answer in words."""
    if request.last.role == "tool":
        return Say("It is a sonnet, of one line so far.")
    if "older" in request.asked:
        return Say("Older than you, I suppose.")
    return Call("delegate", target="worker", operation="read_file", parameters={"path": "sonnet.txt"})


async def main() -> None:
    async with ScriptedModels([Reply(answer)] * 3) as server:
        address = {"kind": "openai", "url": server.openai_url}
        async with Remit.open(".", settings={"model": "scripted", "models": {"scripted": address}}) as remit:
            heard: list[str] = []
            first = await ask(remit, "What is in sonnet.txt?", hear=heard.append)
            print(first.status, "".join(heard))
            print([done["operation"] for done in first.data["delegations"]])
            second = await ask(remit, "Is it older than I am?", first.data["conversation"])
            print(second.data["text"])
        kept = Conversations(Path()).open(first.data["conversation"])
        print(f"{kept.title!r}, {len(kept.turns)} messages")


if __name__ == "__main__":
    Path("sonnet.txt").write_text("Shall I compare thee to a summer's day?\n")
    asyncio.run(main())
