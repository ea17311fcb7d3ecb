"""Who came in by a door, and what they may do there. Values; `authenticator` makes them of credentials, `serve.service` holds to them."""

import binascii
import hashlib
import hmac
import json
import logging
import re
import secrets
import string
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from enum import StrEnum
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from remit.core.budget import Budget, Limits
from remit.core.deadline import SYSTEM_CLOCK, Clock
from remit.core.delegation import ROOT_CALLER
from remit.core.errors import Misused, Refused, RemitError, Unavailable
from remit.system.files import FOLDER, file_lock, private_folder, read_private, set_aside, stamp_of, write_private

# ---- Who came in by a door, and what they may do there. Values; `authenticator` makes them of credentials, `serve.service` holds t


class Permission(StrEnum):
    DELEGATE = "delegate"
    """Hand out work, and look at, follow and cancel one's own."""
    SEE_ALL = "see-all"
    """Look at and follow what others asked for too."""
    CANCEL_ALL = "cancel-all"
    SERVE = "serve"
    """Register as a remote agent and be given work."""
    METRICS = "metrics"
    RELAY = "relay"
    """Is a remit itself: the depth, path and deadline it sends are honoured."""


EVERYTHING = frozenset(Permission)


@dataclass(frozen=True, slots=True, kw_only=True)
class Grants:
    """None: not limited."""

    permissions: frozenset[Permission] = frozenset({Permission.DELEGATE})
    agents: tuple[str, ...] | None = None
    """Patterns of agents and operations it may use (`worker`, `worker.read_file`, `code*`); for `serve`, the names it may take."""
    budget: Limits | None = None
    """Of everything it ever asks for together."""
    tree: Limits | None = None
    """Of each tree."""
    timeout_seconds: float | None = None
    """The longest it may ask for."""
    max_depth: int | None = None
    expires_at: float | None = None
    """Wall clock: from then on it lets nobody in."""
    deadline_at: float | None = None
    """Wall clock: whatever it asks for ends by then."""
    requests_per_second: float | None = None
    burst: int | None = None
    request_bytes: int | None = None
    streams: int | None = None
    """How many may be open at once."""

    def may_use(self, agent: str) -> bool:
        """`worker` covers `worker.read_file`."""
        if self.agents is None:
            return True
        return _matches(agent, self.agents) or _matches(agent.partition(".")[0], self.agents)


@dataclass(frozen=True, slots=True, kw_only=True)
class Principal:
    name: str
    """`orchestrator` for who owns this project, by the socket or the token file; `token:NAME`; `cert:NAME`; `delegation:SESSION`."""
    grants: Grants = field(default_factory=Grants)
    parent: str | None = None
    """With the token of a delegation: its session. What is asked for is its child."""
    credentials: tuple[str, ...] = field(default=(), compare=False)
    """By what it came in, so that it can be asked later whether that still holds (`Authenticator.is_valid`); none: it always does."""
    budget: Budget | None = field(default=None, compare=False, repr=False)
    """The limits on everything it asks for, since when; with the token of a delegation the very scope that it draws from, as do all
    tokens that were made of it. None: no limit of its own."""

    @property
    def is_local(self) -> bool:
        return self.name == ROOT_CALLER and self.parent is None

    def may(self, doing: Permission) -> bool:
        return doing in self.grants.permissions


OWNER = Principal(name=ROOT_CALLER, grants=Grants(permissions=EVERYTHING))
"""Whoever may write the project's files may do anything here anyway."""


def _matches(name: str, patterns: Iterable[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


# ---- The tokens of a project: made, listed and revoked by `remit token`; what each was granted; and grants to certificates.


# ---- secrets: `rmt_`, 43 random letters and digits (256 bits), and 6 that check them, so that scanners recognise one


PREFIX = "rmt_"
DELEGATION_PREFIX = "rmd_"
"""Of the token of a delegation (`delegating`), which is longer and holds more."""
_DIGITS = string.digits + string.ascii_uppercase + string.ascii_lowercase
_LENGTH, _CHECK_LENGTH = 43, 6
_WHOLE = re.compile(rf"{PREFIX}([0-9A-Za-z]{{{_LENGTH}}})([0-9A-Za-z]{{{_CHECK_LENGTH}}})")


def new_secret() -> str:
    body = _digits(secrets.randbits(256), _LENGTH)  # 62^43 is a little more than 2^256
    return f"{PREFIX}{body}{_check(body)}"


def is_whole(text: str) -> bool:
    """Whether it is a token as one was made: neither cut off nor mistyped. Says nothing of whether it lets anybody in."""
    match = _WHOLE.fullmatch(text)
    return match is not None and _check(match[1]) == match[2]


def _check(body: str) -> str:
    return _digits(binascii.crc32(body.encode()), _CHECK_LENGTH)


def _digits(number: int, length: int) -> str:
    found = []
    for _ in range(length):
        number, digit = divmod(number, 62)
        found.append(_DIGITS[digit])
    return "".join(reversed(found))


# ---- grants in a file: whatever is not understood is not granted


_LIMITS = ("budget", "tree")
_NUMBERS = {
    "timeout_seconds": float,
    "expires_at": float,
    "deadline_at": float,
    "requests_per_second": float,
    "max_depth": int,
    "burst": int,
    "request_bytes": int,
    "streams": int,
}
_KNOWN = {"doing", "agents", *_LIMITS, *_NUMBERS}


def grants_to_dict(grants: Grants) -> dict[str, Any]:
    """Without what is not limited."""
    held: dict[str, Any] = {"doing": sorted(grants.permissions)}
    if grants.agents is not None:
        held["agents"] = list(grants.agents)
    for name in _LIMITS:
        limits: Limits | None = getattr(grants, name)
        if limits is not None:
            held[name] = {kind: value for kind, value in limits.to_dict().items() if value is not None}
    return held | {name: value for name in _NUMBERS if (value := getattr(grants, name)) is not None}


def grants_from_dict(held: Mapping[str, Any]) -> Grants:
    """Raises `ValueError`: also for a word it does not know, which may be a limit that a later remit wrote."""
    if unknown := set(held) - _KNOWN:
        raise ValueError(f"unknown grants: {', '.join(sorted(unknown))}")
    read: dict[str, Any] = {"permissions": frozenset(Permission(one) for one in held.get("doing", ()))}
    agents = held.get("agents")
    if agents is not None:
        if not isinstance(agents, list) or not all(isinstance(one, str) for one in agents):
            raise ValueError("agents are patterns in a list")
        read["agents"] = tuple(agents)
    known = {field.name for field in fields(Limits)}
    for name in _LIMITS:
        if name in held:
            if not isinstance(held[name], dict) or set(held[name]) - known:
                raise ValueError(f"{name} is no budget")
            read[name] = Limits(**held[name])
    for name, kind in _NUMBERS.items():
        if name in held:
            value = held[name]
            if isinstance(value, bool) or not isinstance(value, int | float) or value < 0:
                raise ValueError(f"{name} is no number")
            read[name] = kind(value)
    return Grants(**read)


# ---- tokens


log = logging.getLogger("remit.access")

FILE, USED_FILE, LOCK_FILE = "tokens.json", "used.json", "tokens.lock"
LOCK_SECONDS = 5.0
USED_SECONDS = 60.0
"""So exactly is it known when a token was last used."""
MOST = 10_000
VERSION = 1
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Token:
    token_id: str
    """For lists and records: not the secret, nor any part of it."""
    name: str
    grants: Grants
    created_at: float
    digest: str = ""
    """Of its secret; empty: it is for certificates."""
    certificate: str | None = None
    """Whose certificate it is for: a name, a pattern of names, or `sha256:…`."""
    revoked_at: float | None = None

    def fault(self, now: float) -> str | None:
        """Why it lets nobody in."""
        if self.revoked_at is not None:
            return "revoked"
        expires_at = self.grants.expires_at
        return "expired" if expires_at is not None and now >= expires_at else None


@dataclass(frozen=True, slots=True)
class _Kept:
    key: bytes
    tokens: tuple[Token, ...]


class Tokens:
    def __init__(self, folder: Path, clock: Clock = SYSTEM_CLOCK) -> None:
        """Of the project whose `.remit` is `folder`."""
        self._folder = folder / FOLDER
        self._clock = clock
        self._stamp: tuple[int, ...] | None = ()
        self._kept = _NONE
        self._by_digest: Mapping[str, Token] = {}
        self._by_id: Mapping[str, Token] = {}
        self._used: dict[str, float] = {}
        self._used_written_at = 0.0

    @property
    def path(self) -> Path:
        return self._folder / FILE

    # ---- at the door

    def find(self, secret: str) -> Token | None:
        """Takes as long for one that is unknown as for one that is not. Expired and revoked ones are found too: see `Token.fault`."""
        self.look()
        digest = _digest(self._kept.key, secret)
        token = self._by_digest.get(digest)
        is_same = hmac.compare_digest(digest, token.digest if token is not None else _NOBODYS)
        return token if is_same else None

    def by_id(self, token_id: str) -> Token | None:
        self.look()
        return self._by_id.get(token_id)

    def for_certificates(self) -> Sequence[Token]:
        self.look()
        return [token for token in self._kept.tokens if token.certificate is not None]

    def look(self) -> None:
        """At the file as it is now; one that cannot be relied on lets nobody in."""
        stamp = stamp_of(self.path)
        if stamp == self._stamp:
            return
        self._stamp = stamp
        try:
            self._take(self._read())
        except RemitError as error:
            log.error("No token works: %s", error)
            self._take(_NONE)

    def _take(self, kept: _Kept) -> None:
        self._kept = kept
        self._by_digest = {token.digest: token for token in kept.tokens if token.digest}
        self._by_id = {token.token_id: token for token in kept.tokens}

    def used(self, token: Token) -> None:
        """Noted now and then, never before each answer."""
        now = self._clock.wall()
        self._used[token.token_id] = now
        if now - self._used_written_at >= USED_SECONDS:
            self.write_used()

    def write_used(self) -> None:
        """What it costs to lose is that a list says less: so no error of it stops anybody."""
        if not self._used:
            return
        self._used_written_at = self._clock.wall()
        self.look()
        try:
            with file_lock(self._folder / LOCK_FILE, timeout=0.05):
                merged = self.last_used() | self._used
                living = {token.token_id for token in self._kept.tokens}
                held = {name: at for name, at in merged.items() if name in living}
                write_private(self._folder / USED_FILE, json.dumps(held).encode(), fsync=False)
            self._used = {}
        except RemitError as error:
            log.warning("When tokens were last used could not be kept: %s", error)

    # ---- for whoever owns the project

    def all(self) -> Sequence[Token]:
        """Also those that let nobody in any more. Raises `Unavailable` when the file is damaged."""
        return self._read().tokens

    def last_used(self) -> dict[str, float]:
        try:
            held = json.loads(read_private(self._folder / USED_FILE) or b"{}")
        except (ValueError, RemitError):
            return {}
        return {str(name): float(at) for name, at in held.items() if isinstance(at, int | float)} if isinstance(held, dict) else {}

    def new(self, name: str, grants: Grants, certificate: str | None = None) -> tuple[Token, str | None]:
        """The token and its secret, which is nowhere else; None with a certificate, which is its own."""
        if not NAME.fullmatch(name):
            raise Misused(f"{name!r} is no name for a token.", advice="Use letters, digits, `.`, `_` and `-`.")
        private_folder(self._folder)
        with file_lock(self._folder / LOCK_FILE, timeout=LOCK_SECONDS):
            kept = self._read_or_set_aside()
            now = self._clock.wall()
            if any(token.name == name and token.fault(now) is None for token in kept.tokens):
                raise Refused(
                    f"There is a token {name}.", code="FORBIDDEN", advice=f"Revoke it first (`remit token revoke {name}`), or name another."
                )
            if len(kept.tokens) >= MOST:
                kept = replace(kept, tokens=tuple(token for token in kept.tokens if token.fault(now) is None))
            secret = new_secret() if certificate is None else None
            token = Token(
                token_id=f"tok_{secrets.token_hex(6)}",
                name=name,
                grants=grants,
                created_at=now,
                digest="" if secret is None else _digest(kept.key, secret),
                certificate=certificate,
            )
            self._write(replace(kept, tokens=(*kept.tokens, token)))
        return token, secret

    def revoke(self, name: str) -> list[Token]:
        """By name or id: all that were not yet; it holds from the next request on, in whatever process."""
        private_folder(self._folder)
        with file_lock(self._folder / LOCK_FILE, timeout=LOCK_SECONDS):
            kept = self._read()
            meant = [token for token in kept.tokens if name in (token.name, token.token_id)]
            if not meant:
                raise Misused(f"There is no token {name[:80]}.", code="TASK_NOT_FOUND", advice="`remit token list` lists them.")
            now = self._clock.wall()
            ended = {token.token_id: replace(token, revoked_at=now) for token in meant if token.revoked_at is None}
            if ended:
                self._write(replace(kept, tokens=tuple(ended.get(token.token_id, token) for token in kept.tokens)))
        return list(ended.values())

    # ---- the file

    def _read(self) -> _Kept:
        data = read_private(self.path)
        if data is None:
            return _NONE
        try:
            return _understood(json.loads(data))
        except (ValueError, KeyError, TypeError, AttributeError, RemitError) as error:
            raise Unavailable(
                f"{self.path} is damaged ({error}).",
                code="STORE_UNAVAILABLE",
                advice="`remit token new` sets it aside and begins a new one; its tokens must be made anew.",
            ) from None

    def _read_or_set_aside(self) -> _Kept:
        try:
            kept = self._read()
        except Unavailable as error:
            if not self.path.exists():
                raise
            log.error("%s It is now %s.", error.message, set_aside(self.path).name)
            kept = _NONE
        return kept if kept.key else replace(kept, key=secrets.token_bytes(32))

    def _write(self, kept: _Kept) -> None:
        held = {"version": VERSION, "key": kept.key.hex(), "tokens": [_entry(token) for token in kept.tokens]}
        write_private(self.path, json.dumps(held, indent=1).encode())


_NONE = _Kept(b"", ())
_NOBODYS = "0" * 64


def _digest(key: bytes, secret: str) -> str:
    return hmac.new(key or b"\0", secret.encode("utf-8", "surrogatepass"), hashlib.sha256).hexdigest()


def _entry(token: Token) -> dict[str, Any]:
    held = {
        "id": token.token_id,
        "name": token.name,
        "created_at": token.created_at,
        "digest": token.digest,
        "certificate": token.certificate,
        "revoked_at": token.revoked_at,
        "grants": grants_to_dict(token.grants),
    }
    return {name: value for name, value in held.items() if value not in (None, "")}


def _understood(held: Any) -> _Kept:
    if held["version"] != VERSION:
        raise ValueError(f"it is of version {held['version']}, which a later remit writes")
    key = bytes.fromhex(held["key"])
    if len(key) < 32:
        raise ValueError("its key is too short")
    return _Kept(key, tuple(_token(one) for one in held["tokens"]))


def _token(held: Mapping[str, Any]) -> Token:
    digest, certificate = held.get("digest", ""), held.get("certificate")
    if not NAME.fullmatch(held["name"]) or not (re.fullmatch(r"[0-9a-f]{64}", digest) if certificate is None else digest == ""):
        raise ValueError("a token is neither one nor a certificate's")
    return Token(
        token_id=str(held["id"]),
        name=held["name"],
        grants=grants_from_dict(held["grants"]),
        created_at=float(held["created_at"]),
        digest=digest,
        certificate=certificate,
        revoked_at=None if held.get("revoked_at") is None else float(held["revoked_at"]),
    )


# ---- The local token: what a program of this machine shows at a port, as it would open the socket. Who can read its file owns


LOCAL_FILE = "serve.token"


class LocalToken:
    def __init__(self, folder: Path) -> None:
        """Of the project whose `.remit` is `folder`."""
        self.path = folder / "run" / LOCAL_FILE
        self._stamp: tuple[int, ...] | None = None
        self._secret = ""

    def make(self) -> Path:
        """Where it is, from now on; called when a server starts."""
        private_folder(self.path.parent)
        with file_lock(self.path.with_suffix(".lock"), timeout=5.0):
            try:
                found = _read(self.path)
            except Refused as error:
                logging.getLogger("remit.access").warning("%s A new one is made.", error.message)
                found = None
            if found is None:
                write_private(self.path, f"{new_secret()}\n".encode())
        return self.path

    def is_it(self, text: str) -> bool:
        stamp = stamp_of(self.path)
        if stamp != self._stamp:
            self._stamp = stamp
            try:
                self._secret = _read(self.path) or ""
            except RemitError as error:
                logging.getLogger("remit.access").error("The local token is not used: %s", error)
                self._secret = ""
        theirs, ours = text.encode("utf-8", "surrogatepass"), (self._secret or "\0").encode()
        return hmac.compare_digest(theirs, ours) and bool(self._secret)


def local_token(folder: Path) -> str:
    """For a client on this machine. Raises `Unavailable` where no server made one, `Refused` for one that others can read."""
    path = folder / "run" / LOCAL_FILE
    found = _read(path)
    if found is None:
        raise Unavailable(f"There is no {path}: no server of this project was started yet.", advice="Start one: `remit serve`.")
    return found


def _read(path: Path) -> str | None:
    data = read_private(path)
    text = (data or b"").decode("ascii", "replace").strip()
    return text if is_whole(text) else None
