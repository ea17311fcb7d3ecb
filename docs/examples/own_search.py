"""A search provider of one's own: it asks the search of a wiki, by the guarded way that it is given."""

from urllib.parse import quote

from remit import SearchClient, SearchHit, SearchNotConfigured, SearchProvider


class Wiki:
    name = "wiki"

    def __init__(self, client: SearchClient, url: str) -> None:
        self.client = client
        self.url = url

    async def search(self, query: str, max_results: int) -> list[SearchHit]:
        pages = await self.client.get_json(f"{self.url}/search.json?q={quote(query)}", {})
        return [SearchHit(title=page["title"], url=page["url"], snippet=page["text"]) for page in pages[:max_results]]


def wiki(client: SearchClient) -> SearchProvider:
    if "WIKI_URL" not in client.environ:
        raise SearchNotConfigured("set WIKI_URL to the address of the wiki")
    return Wiki(client, client.environ["WIKI_URL"])
