"""What a delegation tree has read, and which addresses it met: facts by which the policy decides what may leave it.

A model that has read files could send them anywhere by a request's body, headers or address. An address that a person wrote, that the
settings name or that the tree met on the web says nothing about those files.
"""

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from itertools import islice
from typing import Any
from urllib.parse import urldefrag, urlsplit

from remit.core.agents import AgentSpec, Isolation, WorkspaceKind, is_built_in, is_role
from remit.core.policy import Effect, Fact
from remit.core.ports import AgentPort
from remit.core.record import Record
from remit.core.result import Return

MOST_ADDRESSES = 20_000
LONGEST_ADDRESS = 4_000
MOST_WORDS = 1 << 20
"""Characters of what people said; of more, the end."""
_DEEPEST = 20
_PLAIN_HEADERS = {
    "accept": re.compile(
        r"(?:(?:\*|application|text|image)/(?:\*|json|xml|html|xhtml\+xml|plain|markdown|csv|pdf)(?:;\s?q=0\.\d)?(?:,\s?|$)){1,4}"
    ),
    "accept-language": re.compile(r"[a-z]{2}(?:-[A-Z]{2})?"),
}
"""Headers whose usual values tell nothing of a file."""


class TreeFacts:
    """What all delegations of one root share. Kept in memory, and made again from the tree's records after a crash."""

    # Defaults: every root makes one of these, and most trees change nothing but refusals.
    has_read_files = False
    """An agent of the tree may have read files of the project."""
    has_read_untrusted = False
    """An agent of the tree may have read what somebody on the network wrote."""
    _words = ""
    _addresses: frozenset[str] | set[str] = frozenset()
    _approved_hosts: frozenset[str] = frozenset()

    def __init__(self) -> None:
        self.refusals: dict[str, tuple[Return, int]] = {}
        """Refusals and how often each was given, by call."""

    def note_agent(self, spec: AgentSpec) -> None:
        """An agent that begins. One that declares no effects and runs as a program of its own may do anything."""
        effects = spec.effects
        if not effects and spec.isolation is Isolation.PROCESS:
            self.note_unknown()
        if spec.workspace is not WorkspaceKind.NONE and (Effect.READ in effects or Effect.EXECUTE in effects):
            self.has_read_files = True
        if Effect.NETWORK in effects:
            self.has_read_untrusted = True

    def note_unknown(self) -> None:
        """It is not known what was read."""
        self.has_read_files = self.has_read_untrusted = True

    def note_result(self, spec: AgentSpec, parameters: Mapping[str, Any], data: Any) -> None:
        """Addresses in what an agent brought from the network: results of a search, links of a page. Not those that it was given and only
        repeats, as a search does with its words; nor those of agents that do not come with remit, or whose answer a model writes."""
        if Effect.NETWORK in spec.effects and is_built_in(spec) and not is_role(spec):
            given = {name: value for name, value in parameters.items() if spec.acts_on.get(name) is not Fact.URL}
            words = "".join(_text_of(given).split())
            found = {address for address in map(_plain, addresses_in(data)) if address not in words}
            self._addresses = {*self._addresses, *islice(found, max(0, MOST_ADDRESSES - len(self._addresses)))}

    def note_words(self, parameters: Mapping[str, Any]) -> None:
        """What a person asked for earlier in the same conversation."""
        self._words = (self._words + "\n" + _text_of(parameters))[-MOST_WORDS:]

    def approve(self, host: str) -> None:
        """A person allowed a request to it."""
        self._approved_hosts |= {host}

    def describe_request(self, url: str, host: str, asked: Mapping[str, Any], named: Collection[str]) -> dict[str, bool]:
        """Facts of a request that an agent wants. `asked`: what the person asked the tree for; `named`: addresses of the settings."""
        is_approved = host in self._approved_hosts
        is_met = _plain(url) in self._addresses or _plain(url) in {_plain(one) for one in named}
        return {
            "approved_host": is_approved,
            "known_url": is_approved or is_met or _is_said(url, _text_of(asked)) or _is_said(url, self._words),
        }


def facts_of_records(records: Iterable[Record], find: Callable[[str], AgentPort | None], facts: TreeFacts | None = None) -> TreeFacts:
    """Of delegations on record. An agent that is gone may have read anything."""
    facts = TreeFacts() if facts is None else facts
    for record in records:
        agent = find(record.agent)
        if agent is None:
            facts.note_unknown()
        elif record.started_at is not None:
            facts.note_agent(agent.spec)
            facts.note_result(agent.spec, record.parameters, None if record.result is None else record.result.data)
    return facts


def sends_data(parameters: Mapping[str, Any]) -> bool:
    """Whether a request carries anything but its address."""
    if parameters.get("body") is not None:
        return True
    headers = parameters.get("headers") or {}
    if not isinstance(headers, Mapping):
        return True
    plain = ((_PLAIN_HEADERS.get(str(name).lower()), str(value)) for name, value in headers.items())
    return any(pattern is None or pattern.fullmatch(value) is None for pattern, value in plain)


def _is_said(url: str, words: str) -> bool:
    """Literally, with or without its scheme and the slash at its end; not as a part of a longer name."""
    bare = re.sub(r"^https?://", "", _plain(url), flags=re.IGNORECASE)
    return bare in words and re.search(rf"(?<![\w.-]){re.escape(bare)}(?![\w-])", words) is not None


def _plain(url: str) -> str:
    url = urldefrag(url.strip())[0]
    return url.removesuffix("/")


def _text_of(value: Any) -> str:
    return "\n".join(_texts(value, _DEEPEST))


def _texts(value: Any, levels: int) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif levels and isinstance(value, Mapping):
        for one in value.values():
            yield from _texts(one, levels - 1)
    elif levels and isinstance(value, list | tuple):
        for one in value:
            yield from _texts(one, levels - 1)


def addresses_in(data: Any) -> Iterator[str]:
    """Values that are addresses. Those amid a text are not looked for: the text of a page is written by anybody."""
    for text in _texts(data, _DEEPEST):
        if len(text) <= LONGEST_ADDRESS and text[:8].lower().startswith(("http://", "https://")) and _is_address(text):
            yield text


def _is_address(text: str) -> bool:
    try:
        return bool(urlsplit(text).hostname) and not any(sign.isspace() for sign in text)
    except ValueError:
        return False
