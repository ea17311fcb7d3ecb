"""An agent elsewhere hands on less than it has: the token of its delegation, narrowed without asking anybody."""

import asyncio

from remit import Remit, agent
from remit.access.delegating import narrowed
from remit.access.entrance import Entrance
from remit.core.errors import RemitError
from remit.serve.service import Call, Service


@agent("shelf.look")
async def look(title: str) -> str:
    return f"{title} is on the second shelf."


@agent("shelf.lend")
async def lend(title: str) -> str:
    return f"{title} is yours for two weeks."


@agent
async def librarian() -> str:
    """Stands for an agent on another machine, which works for a while and asks the server with the token it was given."""
    await asyncio.sleep(60)
    return "Closed."


class Server:
    """What a door does with a request."""

    def __init__(self, remit: Remit) -> None:
        self.service = Service(remit)
        self.entrance = Entrance(remit.folder, remit.settings.serve, living=remit.engine.running.get)
        self.entrance.open()

    async def ask(self, token: str, operation: str) -> str:
        try:
            call = Call(visitor=self.entrance.by_bearer(token), door="http")
            result = await (await self.service.begin(call, {"target": operation, "parameters": {"title": "Emma"}})).result()
        except RemitError as error:
            return error.code
        return result.errors[0].code if result.errors else result.summary


async def main() -> None:
    async with Remit.open(".", agents=[look, lend, librarian]) as remit:
        server = Server(remit)
        work = await remit.start("librarian")
        token = server.entrance.token_for(remit.engine.running[work.session_id])
        apprentice = narrowed(token, operations=["shelf.look"], budget={"delegations": 1})
        guest = narrowed(apprentice, operations=["*"], budget={"delegations": 100})
        print("librarian lends:", await server.ask(token, "shelf.lend"))
        print("apprentice lends:", await server.ask(apprentice, "shelf.lend"))
        print("apprentice looks:", await server.ask(apprentice, "shelf.look"))
        print("guest of the apprentice lends:", await server.ask(guest, "shelf.lend"))
        print("guest of the apprentice looks:", await server.ask(guest, "shelf.look"))
        await work.cancel()
        print("librarian, when the work is over:", await server.ask(token, "shelf.look"))


if __name__ == "__main__":
    asyncio.run(main())
