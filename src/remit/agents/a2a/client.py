"""The address and card of an A2A agent, and an HTTP client that does not trust it: bounded responses, no
redirects, no proxy, no cookies."""

import asyncio
import contextlib
import ssl
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import httpx
from a2a.client import Client, ClientConfig, ClientFactory
from a2a.client.card_resolver import parse_agent_card
from a2a.types import AgentCard, AgentInterface
from google.protobuf.json_format import ParseError

from remit.agents.remote import must_be_private
from remit.core.errors import Failed, Misused, Unavailable
from remit.core.request_metadata import EXTENSION
from remit.system.http import PLAIN, BodyError, Target, bound_by, joined, parse_target, tls_context
from remit.system.ip_addresses import is_loopback

# ---- HTTP

CONNECT_SECONDS = 10.0
QUIET_SECONDS = 60.0
"""A stream that is silent for this long is reopened: its connection may be dead."""


def http_client(tls: ssl.SSLContext | bool, headers: dict[str, str]) -> httpx.AsyncClient:
    timeout = httpx.Timeout(QUIET_SECONDS, connect=CONNECT_SECONDS, pool=CONNECT_SECONDS)
    hooks = {"response": [_refuse_redirect, bound_by(httpx.AsyncByteStream, None)]}
    own = {**PLAIN, "User-Agent": "remit", **headers}
    return httpx.AsyncClient(verify=tls, timeout=timeout, headers=own, follow_redirects=False, trust_env=False, event_hooks=hooks)


async def _refuse_redirect(response: httpx.Response) -> None:
    if response.is_redirect:
        await response.aclose()
        raise Failed(f"It answered {response.status_code}: redirects are not followed.", advice="Configure its final address.")


# ---- address and card

CARD_PATH = "/.well-known/agent-card.json"
CARD_SECONDS = 15.0
KEPT_SECONDS = 300.0
BINDINGS = ("JSONRPC", "HTTP+JSON")
"""In order of preference."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteConnection:
    """A reached remote: its card and a client for it."""

    card: AgentCard
    client: Client
    address: str
    token: str | None

    @property
    def is_remit(self) -> bool:
        """Whether it knows remit's extension: then it deduplicates messages and continues depth and path."""
        return any(extension.uri == EXTENSION for extension in self.card.capabilities.extensions)

    @property
    def streams(self) -> bool:
        return self.card.capabilities.streaming


class RemoteAgent:
    """One address. All delegations to it share its card."""

    def __init__(self, address: str, ca_file: Path | None) -> None:
        self.target: Target = parse_target(address)
        self._ca_file = ca_file
        self._tls: ssl.SSLContext | None = None
        self._card: AgentCard | None = None
        self._card_until = 0.0
        self._fetching = asyncio.Lock()

    @contextlib.asynccontextmanager
    async def open(self, token: str | None) -> AsyncIterator[RemoteConnection]:
        """Raises `Unavailable`, `Failed`, `Misused`."""
        if token is not None:
            must_be_private(self.target)
        self._tls = self._tls or tls_context(self._ca_file, "ca_file")
        async with http_client(self._tls, {} if token is None else {"Authorization": f"Bearer {token}"}) as http:
            card = await self._card_of(http)
            config = ClientConfig(
                httpx_client=http,
                supported_protocol_bindings=list(BINDINGS),
                use_client_preference=True,
                polling=not card.capabilities.streaming,
            )
            async with ClientFactory(config).create(self._choose_interfaces(card, is_exact=token is not None)) as client:
                yield RemoteConnection(card=card, client=client, address=self.target.shown, token=token)

    # ---- the card

    async def _card_of(self, http: httpx.AsyncClient) -> AgentCard:
        async with self._fetching:
            if self._card is None or time.monotonic() >= self._card_until:
                self._card = await self._fetch_card(http)
                self._card_until = time.monotonic() + KEPT_SECONDS
            return self._card

    async def _fetch_card(self, http: httpx.AsyncClient) -> AgentCard:
        """The card below the address, else that of the host: many servers answer at a path, like `remit serve` at /a2a."""
        shown, url = self.target.shown, self.target.url.rstrip("/")
        places = [url] if url.endswith(".json") else list(dict.fromkeys([f"{url}{CARD_PATH}", joined(self.target, CARD_PATH)]))
        try:
            async with asyncio.timeout(CARD_SECONDS):
                for place in places:
                    response = await http.get(place)
                    if response.status_code != 404:
                        break
            response.raise_for_status()
            return parse_agent_card(response.json())
        except (TimeoutError, httpx.HTTPError, BodyError) as error:
            fault = str(error) or f"{type(error).__name__} after {CARD_SECONDS:g} s"
            raise Unavailable(f"The agent card of {shown} cannot be fetched: {fault}.", advice="Check its address.") from None
        except (ValueError, ParseError, AttributeError, TypeError, RecursionError) as error:
            words = f"The card of {shown} cannot be read: {type(error).__name__}: {error}"
            raise Failed(words[:400], code="VALIDATION_FAILED", advice="Check that it speaks A2A 1.0.") from None

    def _choose_interfaces(self, card: AgentCard, *, is_exact: bool) -> AgentCard:
        """The card with only the usable interfaces. `is_exact`: those of the exact address that the token is for; another port of the host
        may belong to someone else."""
        ours = [one for one in card.supported_interfaces if one.protocol_binding in BINDINGS and self._is_ours(one, is_exact=is_exact)]
        if not ours:
            named = ", ".join(f"{one.protocol_binding} at {one.url}"[:120] for one in card.supported_interfaces[:5]) or "nothing"
            raise Failed(
                f"The card of {self.target.shown} names {named}, which are not supported at that {'address' if is_exact else 'host'}.",
                code="AGENT_UNAVAILABLE",
                advice="Write the address in remit.toml as the card has it.",
            )
        chosen = AgentCard()
        chosen.CopyFrom(card)
        del chosen.supported_interfaces[:]
        chosen.supported_interfaces.extend(ours)
        return chosen

    def _is_ours(self, interface: AgentInterface, *, is_exact: bool) -> bool:
        try:
            there = parse_target(interface.url)
        except Misused:
            return False
        is_same = there.host == self.target.host or (is_loopback(there.host) and is_loopback(self.target.host))
        if is_exact:
            return is_same and (there.scheme, there.port) == (self.target.scheme, self.target.port)
        return is_same and (there.scheme == "https" or self.target.scheme == "http")
