"""Two projects that know each other over A2A: one serves its agents, the other uses one of them; and a client of the SDK's."""

import asyncio
import contextlib
import json
import os
import sys
import uuid
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
from a2a.client import A2ACardResolver, ClientConfig, ClientFactory
from a2a.types import Message, Part, Role, SendMessageRequest, TaskState
from google.protobuf.json_format import ParseDict
from google.protobuf.struct_pb2 import Value

from remit import Remit

AGENTS = '''
from remit import Context, agent


@agent("text.count")
async def count(ctx: Context, words: str) -> dict:
    """Counts words."""
    ctx.progress("Counting.")
    return {"count": len(words.split()), "depth": ctx.depth}
'''


@contextlib.asynccontextmanager
async def serving(root: Path) -> AsyncIterator[tuple[str, str]]:
    """`remit serve` in that folder: where it is found, and the file with the token of its owner."""
    command = [sys.executable, "-m", "remit", "serve", "--api", "a2a", "--http", "127.0.0.1:0", "--json", "--root", str(root)]
    server = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    assert server.stdout is not None
    said = json.loads(await server.stdout.readuntil(b"\n}\n"))
    try:
        yield said["apis"]["a2a"], said["token_file"]
    finally:
        server.terminate()
        await server.wait()


async def main(far: Path, near: Path) -> None:
    async with serving(far) as (url, token_file):
        token = Path(token_file).read_text().strip()  # noqa: ASYNC240 - a line
        # Any client of A2A: the card says how, the message who and what.
        async with httpx.AsyncClient(headers={"Authorization": f"Bearer {token}"}) as http:
            card = await A2ACardResolver(http, url.removesuffix("/a2a")).get_agent_card()
            print("skill:", next(skill.id for skill in card.skills if skill.id.startswith("text")))
            client = ClientFactory(ClientConfig(httpx_client=http, streaming=False)).create(card)
            asked = {"target": "text", "operation": "count", "parameters": {"words": "a b c"}, "timeout": 10_000}
            message = Message(message_id=uuid.uuid4().hex, role=Role.ROLE_USER, parts=[Part(data=ParseDict(asked, Value()))])
            async for answer in client.send_message(SendMessageRequest(message=message)):
                print(TaskState.Name(answer.task.status.state), answer.task.artifacts[0].parts[0].data.struct_value["count"])

        # Another remit: the agent is one of its own, with its limits, its record and its deadline.
        os.environ["FAR_TOKEN"] = token
        elsewhere = {"a2a": url, "remote": "text.count", "token_variable": "FAR_TOKEN"}
        async with Remit.open(near, settings={"agents": {"counter": elsewhere}}) as remit:
            returned = await remit.delegate("counter", parameters={"words": "to be or not to be"})
            print(returned.status, returned.data["count"], "at depth", returned.data["depth"])


far, near = Path("far"), Path("near")
(far / ".remit" / "agents").mkdir(parents=True)
(far / ".remit" / "agents" / "text.py").write_text(AGENTS)
near.mkdir()
asyncio.run(main(far, near))
