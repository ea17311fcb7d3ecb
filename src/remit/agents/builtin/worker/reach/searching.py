"""One search: the providers in their order until one answers, each at its pace. The guarded means they are given. Used by `worker.web`."""

import asyncio
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from remit.agents.builtin.worker.reach.body import Undecodable
from remit.agents.builtin.worker.reach.charset import text_of
from remit.agents.builtin.worker.reach.fetch import fetch, headers_of, read_json
from remit.agents.builtin.worker.reach.follow import Asking, Network, checked
from remit.agents.builtin.worker.reach.pace import back_off, turn
from remit.agents.builtin.worker.reach.pinned import Unreached
from remit.agents.builtin.worker.reach.providers import Hit, NotSetUp, Reaching, SearchProvider, Unanswered, provider
from remit.agents.builtin.worker.reach.target import target_of
from remit.core.errors import Misused, Refused, RemitError
from remit.settings.values import Search
from remit.system.threads import off_loop

MOST_BYTES = 2 * 1024 * 1024
SECONDS_EACH = 20.0
_TOO_MANY_SECONDS = 30.0
"""Left alone for so long by whoever says 429 and not how long."""


@dataclass(slots=True)
class Found:
    provider: str = ""
    hits: list[Hit] = field(default_factory=list)
    tried: dict[str, str] = field(default_factory=dict)
    """By provider: why it gave nothing."""
    refusals: list[Refused] = field(default_factory=list)
    """Of the policy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Searching:
    settings: Search
    network: Network
    run_folder: Path
    remaining: Callable[[], float]
    environ: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))

    async def search(self, query: str, max_results: int) -> Found:
        """Of the first provider that answers; `provider` is empty when none did."""
        found = Found()
        for name in self.settings.providers:
            try:
                asked = provider(name, self._reaching())
                await self._wait_for_turn(name)
                found.hits = await self._ask(asked, query, max_results)
                found.provider = name
                break
            except NotSetUp as missing:
                found.tried[name] = f"not set up: {missing}"
            except Unanswered as error:
                found.tried[name] = str(error)
                if error.back_off_seconds:
                    await off_loop(back_off, self.run_folder, name, error.back_off_seconds)
            except Refused as refusal:
                found.tried[name] = refusal.message
                found.refusals.append(refusal)
        return found

    async def _ask(self, asked: SearchProvider, query: str, max_results: int) -> list[Hit]:
        seconds = self._seconds()
        try:
            async with asyncio.timeout(seconds):
                hits = [hit for hit in await asked.search(query, max_results) if _is_hit(hit)]
        except TimeoutError:
            raise Unanswered(f"it did not answer within {seconds:.0f} s") from None
        except (RemitError, Unanswered, NotSetUp):
            raise
        except Exception as error:  # noqa: BLE001 - a provider may be users' code: the next one is asked
            raise Unanswered(f"it raised {type(error).__name__}") from None
        return hits[:max_results]

    def _seconds(self) -> float:
        return max(0.1, min(SECONDS_EACH, self.remaining() * 0.6))

    async def _wait_for_turn(self, name: str) -> None:
        longest = self.remaining() * 0.5
        wait = await off_loop(turn, self.run_folder, name, self.settings.seconds_between, longest)
        if wait > longest:
            raise Unanswered(f"too many requests wait for it already ({wait:.0f} s)")
        await asyncio.sleep(wait)

    def _reaching(self) -> Reaching:
        return Reaching(settings=self.settings, get_json=self._get_json, permit=self._permit, blocking=self._blocking, environ=self.environ)

    async def _get_json(self, url: str, headers: Mapping[str, str]) -> Any:
        try:
            asking = Asking(target=target_of(url), headers=headers_of({"Accept": "application/json", **headers}))
            fetched = await fetch(asking, self.network, most=MOST_BYTES, seconds=self._seconds())
        except (Unreached, Undecodable, Misused) as error:
            raise Unanswered(str(error)) from None
        if fetched.status == 429:
            said = fetched.headers.get("retry-after", "")
            seconds = float(said) if said.isascii() and said.isdigit() else _TOO_MANY_SECONDS
            raise Unanswered("it says that there were too many requests (429)", back_off_seconds=seconds)
        if fetched.status in (401, 403):
            raise Unanswered(f"it refuses the request ({fetched.status}): is the key right, and JSON allowed?")
        if fetched.status != 200:
            raise Unanswered(f"it answers with status {fetched.status}")
        value, fault = read_json(text_of(fetched.body.content, fetched.content_type).text)
        if fault or fetched.body.cut:
            raise Unanswered(fetched.body.cut or "what it answers is no JSON")
        return value

    async def _permit(self, url: str) -> None:
        try:
            await checked(target_of(url), "GET", self.network)
        except (Unreached, Misused) as error:
            raise Unanswered(str(error)) from None

    async def _blocking(self, work: Callable[[], Any]) -> Any:
        return await off_loop(work)


def _is_hit(hit: object) -> bool:
    """A provider may be users' code, and hand on whatever a server said."""
    return isinstance(hit, Hit) and all(isinstance(text, str) for text in (hit.title, hit.url, hit.snippet, hit.date or ""))


def now_text(moment: float | None = None) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() if moment is None else moment))
