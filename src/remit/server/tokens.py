"""Principals, their grants, and their tokens.

Tokens created by `remit token` are kept in `.remit/access/tokens.json` as HMAC-SHA256 digests with a key of the project, never as secrets.
A fast hash is enough for 256 random bits, and a slow one on every request would allow denial of service. The file's stamp is checked on
every request, so a revoked token is refused at once. The owner's token, `.remit/run/serve.token`, is for programs on this machine: reading
it needs the same rights as opening the project's socket."""

import hashlib
import hmac
import logging
import os
import re
import secrets
import string
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import AliasChoices, BaseModel, BeforeValidator, ConfigDict, Field, InstanceOf, PlainSerializer

from remit.core.budget import Budget, Limits
from remit.core.deadline import SYSTEM_CLOCK, Clock
from remit.core.delegation import ROOT_CALLER
from remit.core.errors import Misused, Refused, RemitError, Unavailable
from remit.system.files import FOLDER, file_lock, private_folder, read_private, stamp_of, write_private
from remit.system.ownership import is_made_here, note_made
from remit.system.trust import CODE, VARIABLE

log = logging.getLogger("remit.access")

FILE, LOCK_FILE, LOCAL_FILE = "tokens.json", "tokens.lock", "serve.token"
LOCK_SECONDS = 5.0
PREFIX = "rmt_"
DELEGATION_PREFIX = "rmd_"
"""Prefix of the token of a running delegation (`authenticator`)."""
_NAME = r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}"


# ---- grants and principals


class Permission(StrEnum):
    DELEGATE = "delegate"
    """Start work, and see, follow and cancel the caller's own."""
    SEE_ALL = "see-all"
    """See and follow the work of others."""
    CANCEL_ALL = "cancel-all"
    SERVE = "serve"
    """Register as a remote agent and receive work."""
    METRICS = "metrics"
    RELAY = "relay"
    """The caller is a remit: the depth and path it sends are honoured."""


EVERYTHING = frozenset(Permission)
_Limits = Annotated[
    InstanceOf[Limits],
    BeforeValidator(lambda given: Limits(**given) if isinstance(given, dict) else given),
    PlainSerializer(lambda limits: {name: value for name, value in limits.to_dict().items() if value is not None}),
]
_Seconds = Annotated[float, Field(ge=0, strict=True)]
_Count = Annotated[int, Field(ge=0, strict=True)]


class Grants(BaseModel):
    """None: not limited. An unknown entry in the file is an error: it may be a limit of a later version."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    permissions: Annotated[frozenset[Permission], PlainSerializer(sorted)] = Field(
        default=frozenset({Permission.DELEGATE}), validation_alias=AliasChoices("permissions", "doing"), serialization_alias="doing"
    )
    agents: tuple[str, ...] | None = None
    """Patterns of allowed agents and operations (`worker`, `worker.read_file`, `code*`); for `serve`, the names it may register."""
    budget: _Limits | None = None
    """For everything it ever requests."""
    tree: _Limits | None = None
    """Of each tree."""
    timeout_seconds: _Seconds | None = None
    """Maximum timeout."""
    max_depth: _Count | None = None
    expires_at: _Seconds | None = None
    """Wall clock after which the credentials are invalid."""
    deadline_at: _Seconds | None = None
    """Wall clock by which its work ends."""

    def may_use(self, agent: str, *, is_operation: bool = True) -> bool:
        """`worker` covers `worker.read_file`, if that is an operation of the target."""
        if self.agents is None:
            return True
        names = (agent, agent.partition(".")[0]) if is_operation else (agent,)
        return any(fnmatchcase(name, pattern) for name in names for pattern in self.agents)

    def to_dict(self) -> dict[str, Any]:
        return self.model_dump(exclude_none=True, by_alias=True)

    @classmethod
    def from_dict(cls, stored: Mapping[str, Any]) -> Self:
        """Raises `ValueError` or `TypeError`."""
        given = {name: value for name, value in stored.items() if name not in ("requests_per_second", "streams")}  # of earlier versions
        return cls.model_validate({"doing": (), **given})


@dataclass(frozen=True, slots=True, kw_only=True)
class Principal:
    """An authenticated caller."""

    name: str
    """`orchestrator` for the owner of the project (by socket or token file), `token:NAME`, `delegation:SESSION`."""
    grants: Grants = field(default_factory=Grants)
    parent: str | None = None
    """With the token of a delegation: its session. New work is its child."""
    credential: str = field(default="", compare=False)
    """The id of its token, for `Authenticator.is_valid`; empty: always valid."""
    budget: Budget | None = field(default=None, compare=False, repr=False)
    """Limits on everything it asks for; None: no limit."""

    @property
    def is_local(self) -> bool:
        """The owner of the project."""
        return self.name == ROOT_CALLER and self.parent is None

    def may(self, permission: Permission) -> bool:
        return permission in self.grants.permissions


OWNER = Principal(name=ROOT_CALLER, grants=Grants(permissions=EVERYTHING))


# ---- secrets: `rmt_` and 49 random letters and digits, so that scanners recognise one


def new_secret() -> str:
    return PREFIX + "".join(secrets.choice(string.ascii_letters + string.digits) for _ in range(49))


def is_whole(text: str) -> bool:
    """Whether it has the form of a token."""
    return re.fullmatch(rf"{PREFIX}[0-9A-Za-z]{{49}}", text) is not None


# ---- tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class Token:
    token_id: Annotated[str, Field(alias="id")]
    """For lists and records; unrelated to the secret."""
    name: Annotated[str, Field(pattern=f"^{_NAME}$")]
    grants: Annotated[Grants, BeforeValidator(lambda given: Grants.from_dict(given) if isinstance(given, dict) else given)]
    created_at: float
    digest: Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
    """Of its secret."""
    revoked_at: float | None = None

    def fault(self, now: float) -> str | None:
        """Why it is invalid."""
        if self.revoked_at is not None:
            return "revoked"
        expires_at = self.grants.expires_at
        return "expired" if expires_at is not None and now >= expires_at else None


class _TokenFile(BaseModel):
    version: Literal[1] = 1
    key: Annotated[str, Field(pattern="^([0-9a-f]{64,})?$")] = ""
    """Hexadecimal."""
    # Earlier versions also kept grants for client certificates there: they have no secret.
    tokens: Annotated[tuple[Token, ...], BeforeValidator(lambda given: [one for one in given if "certificate" not in one])] = ()

    @property
    def secret(self) -> bytes:
        return bytes.fromhex(self.key)

    def to_bytes(self) -> bytes:
        return self.model_dump_json(by_alias=True, exclude_none=True, indent=1).encode()


class Tokens:
    def __init__(self, folder: Path, clock: Clock = SYSTEM_CLOCK) -> None:
        """Of the project whose `.remit` is `folder`."""
        self._folder = folder / FOLDER
        self._clock = clock
        self._stamp: tuple[int, ...] | None = ()
        self._stored = _TokenFile()
        self._by_digest: Mapping[str, Token] = {}
        self._by_id: Mapping[str, Token] = {}

    @property
    def path(self) -> Path:
        return self._folder / FILE

    # ---- for a server

    def find(self, secret: str) -> Token | None:
        """Also expired and revoked ones: see `Token.fault`. Takes the same time for unknown ones."""
        self._refresh()
        digest = _digest(self._stored.secret, secret)
        token = self._by_digest.get(digest)
        is_same = hmac.compare_digest(digest, token.digest if token is not None else "0" * 64)
        return token if is_same else None

    def by_id(self, token_id: str) -> Token | None:
        self._refresh()
        return self._by_id.get(token_id)

    def _refresh(self) -> None:
        """Reload a changed file; with an unreadable one no token is valid."""
        stamp = stamp_of(self.path)
        if stamp == self._stamp:
            return
        self._stamp = stamp
        try:
            self._stored = self._read()
        except RemitError as error:
            log.error("No token is valid: %s", error)
            self._stored = _TokenFile()
        self._by_digest = {token.digest: token for token in self._stored.tokens}
        self._by_id = {token.token_id: token for token in self._stored.tokens}

    # ---- for the owner

    def all(self) -> Sequence[Token]:
        """Also invalid ones. Raises `Unavailable` when the file is damaged."""
        return self._read().tokens

    def new(self, name: str, grants: Grants) -> tuple[Token, str]:
        """The token and its secret, which is stored nowhere."""
        if not re.fullmatch(_NAME, name):
            raise Misused(f"{name!r} is not a valid name for a token.", advice="Use letters, digits, `.`, `_` and `-`.")
        private_folder(self._folder)
        with file_lock(self._folder / LOCK_FILE, timeout=LOCK_SECONDS):
            stored, now = self._read(), self._clock.wall()
            if not stored.key:
                stored = _TokenFile(key=secrets.token_hex(32))
            if any(token.name == name and token.fault(now) is None for token in stored.tokens):
                advice = f"Revoke it first (`remit token revoke {name}`), or choose another name."
                raise Refused(f"There is a token {name} already.", code="FORBIDDEN", advice=advice)
            secret = new_secret()
            token = Token(
                token_id=f"tok_{secrets.token_hex(6)}",
                name=name,
                grants=grants,
                created_at=now,
                digest=_digest(stored.secret, secret),
            )
            note_made(self.path, stored.secret)
            write_private(self.path, stored.model_copy(update={"tokens": (*stored.tokens, token)}).to_bytes())
        return token, secret

    def revoke(self, name: str) -> list[Token]:
        """By name or id: those that were valid. Takes effect with the next request to any process."""
        private_folder(self._folder)
        with file_lock(self._folder / LOCK_FILE, timeout=LOCK_SECONDS):
            stored, now = self._read(), self._clock.wall()
            meant = [token for token in stored.tokens if name in (token.name, token.token_id)]
            if not meant:
                raise Misused(f"There is no token {name[:80]}.", code="TASK_NOT_FOUND", advice="`remit token list` lists them.")
            ended = {token.token_id: replace(token, revoked_at=now) for token in meant if token.revoked_at is None}
            if ended:
                tokens = tuple(ended.get(token.token_id, token) for token in stored.tokens)
                write_private(self.path, stored.model_copy(update={"tokens": tokens}).to_bytes())
        return list(ended.values())

    def adopt(self) -> bool:
        """Accept the tokens of a file that was not created here. Returns whether there is one."""
        key = self._parse().secret
        is_foreign = bool(key) and not is_made_here(self.path, key)
        if is_foreign:
            note_made(self.path, key)
        return is_foreign

    def _read(self) -> _TokenFile:
        stored = self._parse()
        if stored.key and os.environ.get(VARIABLE) != "1" and not is_made_here(self.path, stored.secret):
            raise Refused(
                f"{self.path} was not made here: it came with the project, was moved or restored, or an older remit made it.",
                code=CODE,
                advice="Accept its tokens: remit trust --adopt. Or move it aside and make new ones: remit token new NAME",
            )
        return stored

    def _parse(self) -> _TokenFile:
        data = read_private(self.path)
        try:
            return _TokenFile() if data is None else _TokenFile.model_validate_json(data)
        except (ValueError, TypeError, RemitError) as error:
            raise Unavailable(
                f"{self.path} is damaged ({str(error)[:300]}).",
                code="STORE_UNAVAILABLE",
                advice="Move it away; `remit token new` then begins a new file, and the tokens in it must be made again.",
            ) from None


def _digest(key: bytes, secret: str) -> str:
    return hmac.new(key or b"\0", secret.encode("utf-8", "surrogatepass"), hashlib.sha256).hexdigest()


# ---- the owner's token


class LocalToken:
    """Of one server, new with each start. In a file that only the owner can read."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "run" / LOCAL_FILE
        self._secret = new_secret()

    def make(self) -> Path:
        """Its path; called when a server starts."""
        private_folder(self.path.parent)
        write_private(self.path, f"{self._secret}\n".encode())
        return self.path

    def is_it(self, text: str) -> bool:
        return hmac.compare_digest(text.encode("utf-8", "surrogatepass"), self._secret.encode())


def local_token(folder: Path) -> str:
    """For a client on this machine. Raises `Unavailable` if no server created one, `Refused` for one that others can read."""
    path = folder / "run" / LOCAL_FILE
    found = (read_private(path) or b"").decode("ascii", "replace").strip()
    if not is_whole(found):
        raise Unavailable(f"There is no {path}: no server of this project was started yet.", advice="Start one: `remit serve`.")
    return found
