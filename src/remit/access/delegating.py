"""Tokens of delegations: with one, an agent elsewhere asks in the name of the work it was given; and hands on less than it has, never more.

A token is a biscuit: a first block, signed by this project's key, says which delegation it stands for (project, session, attempt, and who
holds it, where that is known); every further block, which whoever holds the token can add without asking anybody (`narrowed`), can only
take away, because nothing can be removed from the chain of signatures. Blocks are read, not evaluated: they hold the few words below and
are refused for any other, so that what is meant as a limit is never passed over; of each number the smallest holds, and a name must fit
the patterns of every block that has some. Whether that delegation still runs, and who shows it, `entrance` asks.
"""

import base64
import binascii
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from remit.access.private import FOLDER, private_folder, read_private, stamp_of, write_private
from remit.access.secret import DELEGATION_PREFIX
from remit.core.budget import Limits
from remit.core.errors import Misused, RemitError, Unavailable
from remit.core.ids import is_session_id
from remit.system.files import file_lock

KEY_FILE = "delegation.key"
LONGEST = 12 * 1024
MOST_BLOCKS = 32
KNOWN_KEPT = 256
_KEY_LENGTH = 43
"""Of the public key that stands before the biscuit: without it a holder could not add a block; a server trusts its own alone."""
_NUMBERS = ("depth", "deadline_ms", "delegations", "alive", "tokens", "cost_micros", "scope_ms")
_LINE = re.compile(
    rf"(?P<number>{'|'.join(_NUMBERS)})\((?P<value>-?[0-9]{{1,18}})\);"
    r"|(?P<operation>operation)\(\"(?P<pattern>[A-Za-z0-9_.*?/:@+-]{1,128})\"\);"
    r"|(?P<fact>project|session|holder|attempt)\(\"?(?P<word>[A-Za-z0-9_.:@/+*-]{1,300})\"?\);"
)
_PATTERN = re.compile(r"[A-Za-z0-9_.*?/:@+-]{1,128}")
_HOLDER = re.compile(r"[A-Za-z0-9_.:@/+*-]{1,300}")
_LARGEST = 10**17


@dataclass(frozen=True, slots=True, kw_only=True)
class Narrower:
    """What one block takes away; None: nothing of that kind."""

    depth: int | None = None
    """No deeper than this."""
    deadline_at: float | None = None
    """Wall clock: the token holds until then, and so does whatever is asked for with it."""
    budget: Limits | None = None
    """Of everything that is asked for with it, and with those made of it, together."""
    operations: tuple[str, ...] | None = None
    """Patterns of agents and operations."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Delegated:
    """What a token says, its signatures checked."""

    session_id: str
    attempt: int
    holder: str | None
    blocks: tuple[Narrower, ...]
    block_ids: tuple[str, ...]
    """One for each: that of a block is its alone, and that of all tokens made of it."""

    @property
    def depth(self) -> int | None:
        return min((block.depth for block in self.blocks if block.depth is not None), default=None)

    @property
    def deadline_at(self) -> float | None:
        return min((block.deadline_at for block in self.blocks if block.deadline_at is not None), default=None)

    @property
    def operations(self) -> tuple[tuple[str, ...], ...]:
        return tuple(block.operations for block in self.blocks if block.operations is not None)


class DelegationKey:
    """The key of one project, made when it is first needed; and the tokens it signs."""

    def __init__(self, folder: Path) -> None:
        """Of the project whose `.remit` is `folder`."""
        self._folder = folder / FOLDER
        self._stamp: tuple[int, ...] | None = None
        self._pair: Any = None
        self._known: dict[str, Delegated] = {}
        """Good ones that came lately: to check the signatures of a token takes longer than all the rest."""

    def sign(self, session_id: str, attempt: int, holder: str | None, narrower: Narrower) -> str:
        biscuit = _biscuit()
        if holder is not None and not _HOLDER.fullmatch(holder):
            raise Misused(f"{holder[:80]!r} cannot hold a token of a delegation.")
        pair = self._key(makes=True)
        public = _word(pair.public_key.to_bytes())
        code = f'project("{public}"); session("{session_id}"); attempt({attempt}); '
        code += f'holder("{holder}"); ' if holder is not None else ""
        built = biscuit.BiscuitBuilder(code + _code(narrower)).build(pair.private_key)
        return f"{DELEGATION_PREFIX}{public}{built.to_base64().rstrip('=')}"

    def read(self, text: str) -> Delegated:
        """Raises `ValueError`, which says why, for whatever this key did not sign; `Unavailable` where the key cannot be read."""
        biscuit = _biscuit()
        pair = self._key(makes=False)
        if pair is None:
            raise ValueError("no token of a delegation was ever made here")
        known = self._known.get(text)
        if known is None:
            public = _word(pair.public_key.to_bytes())
            given, body = _parts(text)
            if given != public:
                raise ValueError("token of another project's delegation")
            try:
                found = biscuit.Biscuit.from_base64(body, pair.public_key)
            except (biscuit.BiscuitValidationError, ValueError):
                raise ValueError("forged or altered token of a delegation") from None
            if found.to_base64() != body:  # bytes that no signature covers
                raise ValueError("altered token of a delegation")
            known = _read(found, public)
            if len(self._known) >= KNOWN_KEPT:
                self._known.clear()
            self._known[text] = known
        return known

    def _key(self, *, makes: bool) -> Any:
        path = self._folder / KEY_FILE
        stamp = stamp_of(path)
        if stamp is None or stamp != self._stamp:
            self._pair, self._stamp, self._known = None, None, {}
            data = read_private(path)
            if data is None and makes:
                data = self._made(path)
            if data is not None:
                self._pair, self._stamp = _pair_of(path, data), stamp_of(path)
        return self._pair

    def _made(self, path: Path) -> bytes:
        private_folder(self._folder)
        with file_lock(self._folder / "delegation.lock", timeout=5.0):
            data = read_private(path)
            if data is None:
                data = bytes(_biscuit().KeyPair().private_key.to_bytes()).hex().encode()
                write_private(path, data)
        return data


def narrowed(
    token: str,
    *,
    depth: int | None = None,
    deadline_at: float | None = None,
    budget: Limits | Mapping[str, Any] | None = None,
    operations: Iterable[str] | None = None,
) -> str:
    """A token that allows less, made of one that is held; needs neither the server nor its key. Hand this on, and keep the other."""
    biscuit = _biscuit()
    try:
        public, body = _parts(token)
        key = biscuit.PublicKey.from_bytes(_bytes(public), biscuit.Algorithm.Ed25519)
        held = biscuit.Biscuit.from_base64(body, key)
    except (ValueError, biscuit.BiscuitValidationError):
        raise Misused(
            "That is no token of a delegation.", advice=f"One begins with {DELEGATION_PREFIX}; it may have been cut off."
        ) from None
    if held.block_count() >= MOST_BLOCKS:
        raise Misused(f"It was narrowed {MOST_BLOCKS - 1} times already.", advice="Narrow one that was narrowed less often.")
    limits = Limits(**budget) if isinstance(budget, Mapping) else budget
    patterns = None if operations is None else tuple(operations)
    code = _code(Narrower(depth=depth, deadline_at=deadline_at, budget=limits, operations=patterns))
    if not code:
        raise Misused("Nothing was to be narrowed.", advice="Say depth, deadline_at, budget or operations.")
    made = held.append(biscuit.BlockBuilder(code))
    return f"{DELEGATION_PREFIX}{public}{made.to_base64().rstrip('=')}"


# ---- blocks


def _code(narrower: Narrower) -> str:
    """A block in Datalog: facts alone. Numbers are rounded to what allows less."""
    numbers: dict[str, float | None] = {"depth": narrower.depth}
    if narrower.deadline_at is not None:
        numbers["deadline_ms"] = narrower.deadline_at * 1000
    if narrower.budget is not None:
        limits = narrower.budget
        numbers |= {"delegations": limits.delegations, "alive": limits.alive, "tokens": limits.tokens}
        numbers["cost_micros"] = None if limits.cost is None else limits.cost * 1_000_000
        numbers["scope_ms"] = None if limits.seconds is None else limits.seconds * 1000
    facts = []
    for name, value in numbers.items():
        if value is not None:
            if isinstance(value, bool) or not isinstance(value, int | float) or not -_LARGEST < value < _LARGEST:
                raise Misused(f"{name} must be a number, not {value!r}.")
            facts.append(f"{name}({int(value // 1)});")
    if narrower.operations is not None:
        if not narrower.operations or not all(isinstance(one, str) and _PATTERN.fullmatch(one) for one in narrower.operations):
            raise Misused("operations are patterns of agents.", advice="Name at least one, such as `worker.read_file` or `coder.*`.")
        facts += [f'operation("{one}");' for one in narrower.operations]
    return " ".join(facts)


def _read(found: Any, public: str) -> Delegated:
    count = found.block_count()
    if count > MOST_BLOCKS:
        raise ValueError("token of a delegation with too many blocks")
    words, first = _facts(found.block_source(0), is_first=True)
    blocks = [first, *(_facts(found.block_source(number), is_first=False)[1] for number in range(1, count))]
    session_id, attempt = words.get("session", ""), words.get("attempt", "")
    if words.get("project") != public or not is_session_id(session_id) or not attempt.isdecimal():
        raise ValueError("token of no delegation")
    return Delegated(
        session_id=session_id,
        attempt=int(attempt),
        holder=words.get("holder"),
        blocks=tuple(blocks),
        block_ids=tuple(found.revocation_ids),
    )


def _facts(source: str, *, is_first: bool) -> tuple[dict[str, str], Narrower]:
    """The words of a block. Texts in it are shown as they are, so a quote in one could look like the end of it: none is allowed."""
    words: dict[str, str] = {}
    numbers: dict[str, int] = {}
    operations: list[str] = []
    for line in source.splitlines():
        match = _LINE.fullmatch(line)
        if match is None or (match["fact"] and (not is_first or match["fact"] in words)):
            raise ValueError("token of a delegation with a block that is not understood")
        if match["number"]:
            name, value = match["number"], int(match["value"])
            numbers[name] = min(value, numbers.get(name, value))
        elif match["operation"]:
            operations.append(match["pattern"])
        else:
            words[match["fact"]] = match["word"]
    return words, _narrower(numbers, tuple(operations) or None)


def _narrower(numbers: Mapping[str, int], operations: tuple[str, ...] | None) -> Narrower:
    def amount(name: str, unit: int = 1) -> float | None:
        return min(max(0, numbers[name]), 10**14) / unit if name in numbers else None

    def count(name: str) -> int | None:
        found = amount(name)
        return None if found is None else int(found)

    limits = Limits(
        delegations=count("delegations"),
        alive=count("alive"),
        tokens=count("tokens"),
        cost=amount("cost_micros", 1_000_000),
        seconds=amount("scope_ms", 1000),
    )
    deadline = numbers.get("deadline_ms")
    return Narrower(
        depth=numbers.get("depth"),
        deadline_at=None if deadline is None else deadline / 1000,
        budget=None if limits == Limits() else limits,
        operations=operations,
    )


# ---- words


def _parts(text: str) -> tuple[str, str]:
    """The public key and the biscuit; each has one spelling only, so that an altered token is never the same one."""
    body = text.removeprefix(DELEGATION_PREFIX)
    if body == text or len(text) > LONGEST or not re.fullmatch(r"[A-Za-z0-9_-]+", body):
        raise ValueError("no token of a delegation")
    public, rest = body[:_KEY_LENGTH], body[_KEY_LENGTH:]
    if _word(_bytes(public)) != public or _word(_bytes(rest)) != rest:
        raise ValueError("altered token of a delegation")
    return public, rest + "=" * (-len(rest) % 4)


def _word(data: bytes) -> str:
    return base64.urlsafe_b64encode(bytes(data)).decode().rstrip("=")


def _bytes(word: str) -> bytes:
    try:
        return base64.urlsafe_b64decode(word + "=" * (-len(word) % 4))
    except binascii.Error:
        raise ValueError("no token of a delegation") from None


def _pair_of(path: Path, data: bytes) -> Any:
    biscuit = _biscuit()
    try:
        key = biscuit.PrivateKey.from_bytes(bytes.fromhex(data.decode("ascii").strip()), biscuit.Algorithm.Ed25519)
        return biscuit.KeyPair.from_private_key(key)
    except (ValueError, UnicodeError, TypeError, biscuit.BiscuitValidationError):
        raise Unavailable(
            f"{path} holds no key.", code="STORE_UNAVAILABLE", advice="Move it away: a new one is made, and tokens of the old one end."
        ) from None


def _biscuit() -> Any:
    """Loaded when first needed; its stubs are behind it, so it is not typed here."""
    try:
        import biscuit_auth
    except ImportError:
        raise Unavailable(
            "Tokens of delegations need biscuit-python.", code="TOOL_UNAVAILABLE", advice='Install it: pip install "remit[serve]"'
        ) from None
    return biscuit_auth


def is_available() -> bool:
    """Whether there can be such tokens here; loads what they need."""
    try:
        _biscuit()
    except RemitError:
        return False
    return True
