"""A search provider as a user would write it: found by `search.providers = ["search_provider:owls"]`."""

from remit.builtin.worker.web import Hit, NotSetUp, Reaching, SearchProvider


class Owls:
    name = "owls"

    def __init__(self, reaching: Reaching) -> None:
        self.reaching = reaching

    async def search(self, query: str, max_results: int) -> list[Hit]:
        if query == "break":
            raise ZeroDivisionError("a fault of the provider")
        if query == "nothing":
            return None  # type: ignore[return-value] # a fault of the provider
        if query == "wrong":
            return [Hit(title=5, url=None), "hit"]  # type: ignore[arg-type,list-item] # as a server said it
        found = await self.reaching.get_json(self.reaching.environ["OWLS_URL"], {})
        return [Hit(title=f"{query} {number}", url=url) for number, url in enumerate(found, 1)]


def owls(reaching: Reaching) -> SearchProvider:
    if "OWLS_URL" not in reaching.environ:
        raise NotSetUp("set OWLS_URL")
    return Owls(reaching)


def broken(_reaching: Reaching) -> SearchProvider:
    raise RuntimeError("not today")
