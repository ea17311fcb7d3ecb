"""Authentication: accepted and refused credentials, and tokens at rest."""

import json
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from remit import Clock, Refused, Unavailable
from remit.core.jsonable import clean_text
from remit.core.redaction import redact_text, redact_value
from remit.server.authenticator import (
    NOTES_BURST,
    Authenticator,
    Credentials,
)
from remit.server.tokens import OWNER, Grants, LocalToken, Permission, Tokens, local_token, new_secret


class Time:
    def __init__(self) -> None:
        self.now = 1_790_000_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def time() -> Time:
    return Time()


@pytest.fixture
def notes() -> list[Any]:
    return []


@pytest.fixture
def authenticator(tmp_path: Path, time: Time, notes: list[Any]) -> Authenticator:
    made = Authenticator(tmp_path, audit=notes.append, clock=Clock(monotonic=time, wall=time))
    made.open()
    return made


def bearer(authenticator: Authenticator, name: str = "ci", **grants: Any) -> str:
    return f"Bearer {authenticator.tokens.new(name, Grants(**grants))[1]}"


def refusal(authenticator: Authenticator, **shown: Any) -> Refused:
    with pytest.raises(Refused) as found:
        authenticator.authenticate(Credentials(**shown))
    return found.value


def test_token_local_token_and_socket_authenticate(authenticator: Authenticator, tmp_path: Path) -> None:
    principal = authenticator.authenticate(Credentials(authorization=bearer(authenticator, agents=("worker",))))
    assert principal.name == "token:ci"
    assert principal.grants.may_use("worker.read_file")
    assert not principal.grants.may_use("coder.run")
    assert not principal.may(Permission.SEE_ALL)
    assert not principal.is_local
    assert authenticator.authenticate(Credentials(authorization=f"bearer {local_token(tmp_path)}")) is OWNER
    assert authenticator.authenticate(Credentials(is_socket=True)) is OWNER


def test_wrong_credentials_get_one_answer_and_the_reason_is_logged(authenticator: Authenticator, notes: list[Any], time: Time) -> None:
    unknown = refusal(authenticator, authorization="Bearer rmt_" + "0" * 49)
    expired, revoked = bearer(authenticator, "old", expires_at=time.now + 10), bearer(authenticator, "gone")
    authenticator.tokens.revoke("gone")
    time.now += 10
    others = [
        refusal(authenticator, authorization=expired, api="http", peer="127.0.0.1"),
        refusal(authenticator, authorization=revoked, api="grpc"),
        refusal(authenticator),
        refusal(authenticator, authorization="Basic eDp5"),
        refusal(authenticator, authorization="Bearer " + "x" * 100_000),
        refusal(authenticator, authorization="Bearer \udc80\n"),
        refusal(authenticator, authorization="Bearer rmd_x"),
        refusal(authenticator, authorization="Bearer wrong", is_socket=True),
    ]
    assert {(type(one), one.code, str(one)) for one in others} == {(Refused, "UNAUTHENTICATED", str(unknown))}
    said = [note["because"] for note in notes]
    assert said[:4] == ["unknown token", "expired token", "revoked token", "no credentials"]
    assert notes[1] == {
        "event": "turned_away", "principal": "token:old", "door": "http", "peer": "127.0.0.1", "because": "expired token",
    }  # fmt: skip
    assert all("rmt_" not in str(note) for note in notes)


def test_flood_of_wrong_tokens_fills_no_log_and_locks_nobody_out(authenticator: Authenticator, notes: list[Any]) -> None:
    good = bearer(authenticator)
    for number in range(3 * int(NOTES_BURST)):
        assert refusal(authenticator, authorization=f"Bearer {number}", peer="10.0.0.9").code == "UNAUTHENTICATED"
    assert authenticator.authenticate(Credentials(authorization=good, peer="10.0.0.9")).name == "token:ci"
    assert len(notes) <= NOTES_BURST


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / ".remit"
    made.mkdir()
    return made


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_secret_is_redacted_everywhere() -> None:
    secret = new_secret()
    for text in (secret, f"curl -H 'Authorization: Bearer {secret}'", f"x{secret}y", secret[:30]):
        assert secret[8:28] not in redact_text(text)
        assert secret[8:28] not in clean_text(text)
    assert secret not in json.dumps(redact_value({"a": [secret], secret: {"b": secret}}))


def test_only_a_hash_is_stored_readable_by_the_owner(folder: Path) -> None:
    tokens = Tokens(folder)
    token, secret = tokens.new("ci", Grants())
    assert secret not in tokens.path.read_text()
    assert secret[10:30] not in tokens.path.read_text()
    assert mode(tokens.path) == 0o600
    assert mode(tokens.path.parent) == 0o700
    assert tokens.find(secret) == token
    assert tokens.find(secret[:-1]) is None
    assert tokens.find("") is None
    assert tokens.find(token.digest) is None
    assert tokens.find("\udc80é") is None
    assert Tokens(folder / "other").find(secret) is None, "a token belongs to one project"


@pytest.mark.parametrize("wrong", [{"doing": ["fly"]}, {"later": 1}, {"agents": "worker"}, {"max_depth": True}, {"budget": {"euros": 1}}])
def test_unknown_grant_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises((ValueError, TypeError)):
        Grants.from_dict({"doing": ["delegate"], **wrong})


def test_concurrent_creation_loses_no_token(folder: Path) -> None:
    def make(number: int) -> str | None:
        return Tokens(folder).new(f"t{number}", Grants())[1]

    with ThreadPoolExecutor(6) as pool:
        secrets = list(pool.map(make, range(24)))
    tokens = Tokens(folder)
    assert len(tokens.all()) == 24
    assert all(secret is not None and tokens.find(secret) is not None for secret in secrets)


def test_damaged_token_file_is_never_overwritten(folder: Path) -> None:
    tokens = Tokens(folder)
    _, secret = tokens.new("ci", Grants())
    damaged = tokens.path.read_bytes()[:-40]
    tokens.path.write_bytes(damaged)
    assert tokens.find(secret) is None
    for change in (lambda: tokens.revoke("ci"), lambda: tokens.new("more", Grants())):
        with pytest.raises(Unavailable, match="damaged"):
            change()
    assert tokens.path.read_bytes() == damaged


def test_token_file_accessible_to_others_is_not_used(folder: Path) -> None:
    tokens = Tokens(folder)
    _, secret = tokens.new("ci", Grants())
    assert tokens.find(secret) is not None
    tokens.path.chmod(0o660)
    assert tokens.find(secret) is None
    with pytest.raises(Refused, match="other users"):
        tokens.new("more", Grants())
    tokens.path.chmod(0o600)
    assert tokens.find(secret) is not None
    moved = tokens.path.rename(folder / "elsewhere.json")
    tokens.path.symlink_to(moved)
    assert tokens.find(secret) is None


def test_local_token_is_private_to_its_owner_and_ends_with_its_server(folder: Path) -> None:
    server = LocalToken(folder)
    path = server.make()
    secret = local_token(folder)
    assert mode(path) == 0o600
    assert server.is_it(secret)
    assert not server.is_it(secret[:-1])
    assert not server.is_it("")
    assert not LocalToken(folder).is_it(secret)
    path.chmod(0o644)
    with pytest.raises(Refused, match="other users"):
        local_token(folder)
    path.unlink()
    with pytest.raises(Unavailable, match="remit serve"):
        local_token(folder)
