"""Dependencies of the runtime, provided by `app` (directory, rules, clock, policy), and a submission, which an engine runs. A submission's
tree tracks what it has read and which URLs it has seen: facts for the policy's decision on outgoing requests.

A model that has read files could send them out in the body, headers or URL of a request. A URL that a person wrote, that the settings name
or that the tree found on the web reveals nothing about those files."""

import asyncio
import contextlib
import contextvars
import os
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol
from urllib.parse import urldefrag, urlsplit

from remit.core.adaptive import LearnedLimits, learned_limits
from remit.core.agents import AgentSpec, Isolation, WorkspaceKind, is_built_in, is_role
from remit.core.budget import Budget, Limits
from remit.core.cache import CacheTerms
from remit.core.deadline import SYSTEM_CLOCK, Clock, TimeLimits
from remit.core.delegation import ROOT_CALLER, Delegation, Lineage
from remit.core.errors import ErrorInfo, Unavailable
from remit.core.ids import CALLER
from remit.core.policy import ALLOW_ALL, Approver, Effect, Fact, PendingApproval, Policy
from remit.core.ports import AgentPort, Store
from remit.core.record import Record
from remit.core.redaction import SecretValues
from remit.core.result import Return
from remit.core.routing import RoutingTable
from remit.system.threads import off_loop

if TYPE_CHECKING:
    from remit.core.settings import Settings
    from remit.runtime.local_context import LocalRun
    from remit.runtime.result_cache import FilesRead

# ---- what a tree has read

MOST_ADDRESSES = 20_000
LONGEST_ADDRESS = 4_000
MOST_WORDS = 1 << 20
"""Maximum characters kept of what people wrote; the end is kept."""
_DEEPEST = 20


class TreeFacts:
    """Facts shared by all delegations of one root. In memory; rebuilt from the tree's records after a crash."""

    # Class defaults: every root creates one of these, and most trees change nothing.
    has_read_files = False
    """An agent of the tree may have read files of the project."""
    has_read_untrusted = False
    """An agent of the tree may have read content from the network."""
    _words = ""
    _addresses: frozenset[str] | set[str] = frozenset()
    _approved_hosts: frozenset[str] = frozenset()
    _refusals: dict[str, tuple[Return, int]] | None = None
    """Refusals with their counts, by call."""

    def note_refusal(self, call: str, refusal: Return) -> tuple[Return, int]:
        """The first refusal of the same call, and its count."""
        if self._refusals is None:
            self._refusals = {}
        first, times = self._refusals.get(call, (refusal, 0))
        self._refusals[call] = first, times + 1
        return first, times + 1

    def note_agent(self, spec: AgentSpec) -> None:
        """Note the effects of a starting agent. One that declares no effects and runs its own program may do anything."""
        effects = spec.effects
        if not effects and spec.isolation is Isolation.PROCESS:
            self.note_unknown()
        if spec.workspace is not WorkspaceKind.NONE and (Effect.READ in effects or Effect.EXECUTE in effects):
            self.has_read_files = True
        if Effect.NETWORK in effects:
            self.has_read_untrusted = True

    def note_unknown(self) -> None:
        """Assume that files and network content were read."""
        self.has_read_files = self.has_read_untrusted = True

    def note_result(self, spec: AgentSpec, parameters: Mapping[str, Any], data: Any) -> None:
        """Note URLs in results from the network: search results, links of a page. Excludes URLs from the parameters, which a search echoes,
        and results of agents that are not built in or whose answer a model writes."""
        if Effect.NETWORK in spec.effects and is_built_in(spec) and not is_role(spec):
            given = {name: value for name, value in parameters.items() if spec.acts_on.get(name) is not Fact.URL}
            words = "".join(_text_of(given).split())
            found = {address for address in map(_plain, addresses_in(data)) if address not in words}
            self._addresses = {*self._addresses, *islice(found, max(0, MOST_ADDRESSES - len(self._addresses)))}

    def note_words(self, parameters: Mapping[str, Any]) -> None:
        """Note what a person asked earlier in the same conversation."""
        self._words = (self._words + "\n" + _text_of(parameters))[-MOST_WORDS:]

    def approve(self, host: str) -> None:
        """Note that a person allowed a request to this host."""
        self._approved_hosts |= {host}

    def describe_request(self, url: str, host: str, asked: Mapping[str, Any], named: Collection[str]) -> dict[str, bool]:
        """Facts about an outgoing request. `asked`: the person's request to the tree; `named`: URLs in the settings."""
        is_approved = host in self._approved_hosts
        is_met = _plain(url) in self._addresses or _plain(url) in {_plain(one) for one in named}
        return {
            "approved_host": is_approved,
            "known_url": is_approved or is_met or _is_said(url, _text_of(asked)) or _is_said(url, self._words),
        }


def facts_of_records(records: Iterable[Record], find: Callable[[str], AgentPort | None], facts: TreeFacts | None = None) -> TreeFacts:
    """Facts from recorded delegations. An agent that no longer exists may have read anything."""
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
    """Whether a request sends data besides its URL."""
    return parameters.get("body") is not None or bool(parameters.get("headers"))


def _is_said(url: str, words: str) -> bool:
    """Whether the words contain the URL literally, with or without scheme and trailing slash; not as part of a longer name."""
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
    """Values that are URLs. URLs inside a text are ignored: anyone can write the text of a page."""
    for text in _texts(data, _DEEPEST):
        if len(text) <= LONGEST_ADDRESS and text[:8].lower().startswith(("http://", "https://")) and _is_address(text):
            yield text


def _is_address(text: str) -> bool:
    try:
        return bool(urlsplit(text).hostname) and not any(sign.isspace() for sign in text)
    except ValueError:
        return False


# ---- learned limits

REFRESH_SECONDS = 20.0
"""Age after which learned limits are reloaded."""


class LimitLearner:
    """Learned time limits of each agent, loaded from the store on first use and refreshed in the background.

    `is_used`: learned limits apply; else they are only noted with the delegation. `in_loop`: the first read is waited for; otherwise, for a
    store on a server, it is made in the background, and the first delegation is not adapted."""

    def __init__(self, store: Store, limits_for: Callable[[str], TimeLimits], clock: Clock, *, is_used: bool, in_loop: bool = True) -> None:
        self._store = store
        self._limits_for = limits_for
        self._now = clock.monotonic
        self._in_loop = in_loop
        self.is_used = is_used
        self._known: dict[str, LearnedLimits | None] = {}
        self._read_at: dict[str, float] = {}
        self._reading: set[asyncio.Task[None]] = set()

    def limits(self, agent: str, command: str | None = None) -> LearnedLimits | None:
        """The learned limits of an agent, within the settings for it or for its command."""
        name = agent if command is None else f"{agent} {command}"
        read_at, now = self._read_at.get(name), self._now()
        if read_at is None and self._in_loop:
            self._read_at[name] = now
            with contextlib.suppress(Unavailable):
                self._known[name] = self._learn(agent, command)
        elif read_at is None or now - read_at > REFRESH_SECONDS:
            self._read_at[name] = now
            task = asyncio.get_running_loop().create_task(self._refresh(name, agent, command))
            self._reading.add(task)
            task.add_done_callback(self._reading.discard)
        return self._known.get(name)

    def _learn(self, agent: str, command: str | None) -> LearnedLimits | None:
        return learned_limits(self._store.durations(agent), self._limits_for(command or agent))

    async def _refresh(self, name: str, agent: str, command: str | None) -> None:
        with contextlib.suppress(Unavailable):
            self._known[name] = await off_loop(self._learn, agent, command)

    def close(self) -> None:
        for task in self._reading:
            task.cancel()


# ---- dependencies


class Agents(Protocol):
    """The directory as the runtime uses it."""

    def find(self, name: str) -> AgentPort | None: ...
    def names(self) -> Sequence[str]: ...


class Rules(NamedTuple):
    """Settings that decide what may run, as plain values."""

    limits_for: Callable[[str], TimeLimits]
    routing: RoutingTable
    learner: LimitLearner | None = None
    """None: no limits are learned."""
    languages: tuple[str, ...] = ()
    """Languages that board tasks may name; empty: any."""
    max_depth: int = 3
    cycles_by_task: bool = False
    budget: Limits = Limits(delegations=1000, alive=256)


class RuntimeDeps(NamedTuple):
    root: Path
    agents: Agents
    rules: Rules
    settings: "Settings"
    clock: Clock = SYSTEM_CLOCK
    note_errors: Callable[[Delegation, Sequence[ErrorInfo], str], None] = lambda _delegation, _errors, _trace: None
    """Writes errors to the error ledger."""
    policy: Policy = ALLOW_ALL
    """Decides every action."""
    approver: Approver | None = None
    """Asks a person; None: no person can be asked, so the answer is no."""
    principal_of: Callable[[str], str | None] = lambda _session_id: None
    """The principal of a delegation's tree; None: not on record."""
    named_addresses: Callable[[], Collection[str]] = tuple
    """URLs in the settings."""


class ActsFor(NamedTuple):
    """The place in the tree of children of a delegation that acts for its caller."""

    place: Lineage
    """The lineage that its children see."""
    asker: Delegation | None
    """The nearest delegation above that does not act for its caller; None: a root caller."""
    names: tuple[str, ...]
    """The path of `place` plus the agents that act for one another below it."""

    @classmethod
    def of(cls, ancestors: Sequence[Delegation]) -> "ActsFor":
        """`ancestors`: itself and its callers, nearest first."""
        place = ancestors[0].lineage.without_own_place()
        passing = [one.agent for one in ancestors if len(one.lineage.path) == len(place.path) + 1]
        asker = next((one for one in ancestors if len(one.lineage.path) <= len(place.path)), None)
        return cls(place, asker, (*place.path, *reversed(passing)))


@dataclass(slots=True)
class Submission:
    """A validated delegation with everything needed to run it. Passed from `delegate` to the engine."""

    delegation: Delegation
    agent: AgentPort | None
    """None only if refused."""
    arguments: Any
    tree: TreeFacts
    budget: Budget
    """The budget scope: its own if it requested limits."""
    caller: "LocalRun | None"
    step_times: list[float | None]
    warnings: tuple[str, ...] = ()
    refusal: Return | None = None
    earlier: Any = None
    """State of an earlier run to continue from (`EarlierRun`), if the request names one."""
    pending: PendingApproval | None = None
    """Approval required before its agent runs."""
    spread: bool = False
    """Whether the caller requested any worker of the task queue."""
    secrets: SecretValues | None = None
    """Secrets in its parameters: redacted from everything stored while this object lives."""
    cache: CacheTerms | None = None
    """Cache terms; None: it always runs."""
    watched: "FilesRead | None" = None
    """State of the files that a cached result depends on, before its agent started."""


CURRENT: "contextvars.ContextVar[LocalRun | None]" = contextvars.ContextVar("remit_current", default=None)
"""The delegation whose agent runs in this context. An engine sets it around each agent, so that delegations inside become children."""
ROOT_LINEAGE = Lineage(session_id="", root_id="", parent_id=None, depth=0, path=(ROOT_CALLER,))


def token_here() -> str | None:
    """The token of the delegation that this code runs in."""
    running = CURRENT.get()
    if running is not None and (token := running.process_environment().get(CALLER)):
        return token
    return os.environ.get(CALLER) or None
