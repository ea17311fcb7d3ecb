"""A search provider of one's own: it asks the search of a wiki, by the guarded way that it is given."""

from urllib.parse import quote

from remit.builtin.worker.web import Hit, NotSetUp, Reaching, SearchProvider


class Wiki:
    name = "wiki"

    def __init__(self, reaching: Reaching, url: str) -> None:
        self.reaching = reaching
        self.url = url

    async def search(self, query: str, max_results: int) -> list[Hit]:
        pages = await self.reaching.get_json(f"{self.url}/search.json?q={quote(query)}", {})
        return [Hit(title=page["title"], url=page["url"], snippet=page["text"]) for page in pages[:max_results]]


def wiki(reaching: Reaching) -> SearchProvider:
    if "WIKI_URL" not in reaching.environ:
        raise NotSetUp("set WIKI_URL to the address of the wiki")
    return Wiki(reaching, reaching.environ["WIKI_URL"])
