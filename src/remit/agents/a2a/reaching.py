"""Where a remote answers: its card, fetched when it is first needed and kept for a while, the binding that is chosen, the connection.

A card is a stranger's: it is bounded, and it sends us nowhere but to the host that the project's owner wrote down, and never from https
to http. So no card can have our token shown to somebody else, or make us call what lies inside.
"""

import asyncio
import json
import ssl
import time
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

import httpx
from a2a.client import Client, ClientConfig, ClientFactory
from a2a.client.card_resolver import parse_agent_card
from a2a.types import AgentCard, AgentInterface
from google.protobuf.json_format import ParseError

from remit.agents.a2a.bounded import http_client
from remit.core.errors import Failed, Misused, Unavailable
from remit.proto.extension import EXTENSION
from remit.system.guarded_http import Target, parse_target
from remit.system.http import BodyTooLarge, limit_chunks

CARD_PATH = "/.well-known/agent-card.json"
CARD_BYTES = 1024 * 1024
CARD_SECONDS = 15.0
KEPT_SECONDS = 300.0
BINDINGS = ("JSONRPC", "HTTP+JSON", "GRPC")
"""The best first."""
GRPC_BYTES = 16 * 1024 * 1024


@dataclass(slots=True)
class Line:
    """A remote that was reached: what it says of itself, and a client for it."""

    card: AgentCard
    client: Client
    http: httpx.AsyncClient
    address: str

    @property
    def is_remit(self) -> bool:
        """It knows our extension: so it takes a message that is sent twice as one, and counts depth and path on."""
        return any(extension.uri == EXTENSION for extension in self.card.capabilities.extensions)

    @property
    def streams(self) -> bool:
        return self.card.capabilities.streaming

    async def __aenter__(self) -> "Line":
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self.client.close()
        await self.http.aclose()


class Remote:
    """One address. Its card is shared by all delegations to it."""

    def __init__(self, address: str, ca_file: Path | None) -> None:
        self.target: Target = parse_target(address)
        self._ca_file = ca_file
        self._tls: ssl.SSLContext | None = None
        self._card: AgentCard | None = None
        self._card_until = 0.0
        self._fetching = asyncio.Lock()

    async def open(self, token: str | None) -> Line:
        """Raises `Unavailable`, `Failed`, `Misused`."""
        if token is not None and self.target.scheme == "http" and not is_loopback(self.target):
            raise Misused(f"No token is sent to {self.target.shown} in the clear.", advice="Write https://…, with TLS on the other side.")
        http = http_client(self._trusted(), {} if token is None else {"Authorization": f"Bearer {token}"})
        try:
            card = await self._described(http)
            chosen = self._chosen(card)
            config = ClientConfig(
                httpx_client=http,
                grpc_channel_factory=self._channel,
                supported_protocol_bindings=list(BINDINGS),
                use_client_preference=True,
                polling=not card.capabilities.streaming,
            )
            return Line(card=card, client=ClientFactory(config).create(chosen), http=http, address=self.target.shown)
        except BaseException:
            await http.aclose()
            raise

    def forget(self) -> None:
        """The card may have changed: it is fetched anew for the next one."""
        self._card_until = 0.0

    # ---- the card

    async def _described(self, http: httpx.AsyncClient) -> AgentCard:
        async with self._fetching:
            if self._card is None or time.monotonic() >= self._card_until:
                self._card = await self._fetched(http)
                self._card_until = time.monotonic() + KEPT_SECONDS
            return self._card

    async def _fetched(self, http: httpx.AsyncClient) -> AgentCard:
        url = self.target.url.rstrip("/")
        url = url if url.endswith(".json") else f"{url}{CARD_PATH}"
        try:
            async with asyncio.timeout(CARD_SECONDS), http.stream("GET", url) as response:
                body = b"".join([chunk async for chunk in limit_chunks(response.aiter_bytes(), CARD_BYTES, "its card")])
                if response.status_code != 200:
                    raise Unavailable(
                        f"{self.target.shown} gives no card: it answers {response.status_code}.", advice="Is that its address?"
                    )
                return parse_agent_card(json.loads(body))
        except BodyTooLarge as error:
            raise Failed(f"{self.target.shown}: {error}.", code="TOO_LARGE") from None
        except (TimeoutError, httpx.TimeoutException):
            raise Unavailable(f"{self.target.shown} gave no card in {CARD_SECONDS:g} s.") from None
        except httpx.HTTPError as error:
            raise Unavailable(f"{self.target.shown} cannot be reached: {str(error) or type(error).__name__}.") from None
        except (ValueError, ParseError, AttributeError, TypeError, RecursionError) as error:
            words = f"The card of {self.target.shown} cannot be read: {type(error).__name__}: {error}"
            raise Failed(words[:400], code="VALIDATION_FAILED", advice="Does it speak A2A 1.0?") from None

    def _chosen(self, card: AgentCard) -> AgentCard:
        """With the interfaces alone that we go to."""
        ours = [one for one in card.supported_interfaces if one.protocol_binding in BINDINGS and self._is_same_host(one)]
        if not ours:
            named = ", ".join(f"{one.protocol_binding} at {one.url}"[:120] for one in card.supported_interfaces[:5]) or "nothing"
            raise Failed(
                f"The card of {self.target.shown} names {named}: nothing that we can speak to at that host.",
                code="AGENT_UNAVAILABLE",
                advice="Write the address in remit.toml as the card has it.",
            )
        chosen = AgentCard()
        chosen.CopyFrom(card)
        del chosen.supported_interfaces[:]
        chosen.supported_interfaces.extend(ours)
        return chosen

    def _is_same_host(self, interface: AgentInterface) -> bool:
        url = interface.url
        if interface.protocol_binding == "GRPC" and "://" not in url:
            url = f"{self.target.scheme}://{url}"
        try:
            there = parse_target(url)
        except Misused:
            return False
        is_same = there.host == self.target.host or (is_loopback(there) and is_loopback(self.target))
        return is_same and (there.scheme == "https" or self.target.scheme == "http")

    # ---- the connection

    def _trusted(self) -> ssl.SSLContext:
        if self._tls is None:
            import certifi

            self._tls = ssl.create_default_context(cafile=certifi.where())
            if self._ca_file is not None:
                try:
                    self._tls.load_verify_locations(cafile=str(self._ca_file))
                except (OSError, ssl.SSLError) as error:
                    words = f"ca_file: {self._ca_file.name} cannot be used: {error}."
                    raise Unavailable(words, code="TOOL_UNAVAILABLE", advice="Name a PEM file of certificates.") from None
        return self._tls

    def _channel(self, url: str) -> Any:
        import grpc
        import grpc.aio

        place = url.partition("://")[2] if "://" in url else url
        options = (("grpc.max_receive_message_length", GRPC_BYTES), ("grpc.enable_http_proxy", 0), ("grpc.use_local_subchannel_pool", 1))
        if self.target.scheme == "http":
            return grpc.aio.insecure_channel(place, options=options)
        roots = None if self._ca_file is None else self._ca_file.read_bytes()
        return grpc.aio.secure_channel(place, grpc.ssl_channel_credentials(roots), options=options)


def is_loopback(target: Target) -> bool:
    return target.host == "localhost" or (target.address is not None and target.address.is_loopback)
