"""A search provider as a user writes it: `search.providers = ["search_provider:owls"]`."""

from remit import SearchClient, SearchHit, SearchNotConfigured, SearchProvider


class Owls:
    name = "owls"

    def __init__(self, client: SearchClient) -> None:
        self.client = client

    async def search(self, query: str, max_results: int) -> list[SearchHit]:
        if query == "break":
            raise ZeroDivisionError("a fault of the provider")
        if query == "nothing":
            return None  # type: ignore[return-value] # a fault of the provider
        if query == "wrong":
            return [SearchHit(title=5, url=None), "hit"]  # type: ignore[arg-type,list-item] # as a server said it
        found = await self.client.get_json(self.client.environ["OWLS_URL"], {})
        return [SearchHit(title=f"{query} {number}", url=url) for number, url in enumerate(found, 1)]


def owls(client: SearchClient) -> SearchProvider:
    if "OWLS_URL" not in client.environ:
        raise SearchNotConfigured("set OWLS_URL")
    return Owls(client)


def broken(_client: SearchClient) -> SearchProvider:
    raise RuntimeError("not today")
