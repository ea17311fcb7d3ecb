"""Tokens at rest (issue 7 item 5): what is kept, who may read it, and what becomes of a file that is damaged or open to others."""

import json
import os
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from remit.access.local import LocalToken, local_token
from remit.access.tokens import Tokens, grants_from_dict, grants_to_dict, is_whole, new_secret
from remit.access.visitor import Doing, Grants
from remit.core.budget import Limits
from remit.core.errors import Misused, Refused, Unavailable
from remit.core.secrets import redacted_text, redacted_value
from remit.flow.plain import clean


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / ".remit"
    made.mkdir()
    return made


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_a_secret_has_256_bits_of_chance_and_checks_itself() -> None:
    made = {new_secret() for _ in range(200)}
    assert len(made) == 200
    assert all(is_whole(one) and one.startswith("rmt_") and one.isascii() for one in made)
    one = made.pop()
    assert not is_whole(one[:-1])
    assert not is_whole(one + "A")
    other = "B" if one[20] != "B" else "C"
    assert not is_whole(one[:20] + other + one[21:])


def test_a_secret_is_struck_out_of_whatever_is_kept() -> None:
    secret = new_secret()
    for text in (secret, f"curl -H 'Authorization: Bearer {secret}'", f"x{secret}y", secret[:30]):
        assert secret[8:28] not in redacted_text(text)
        assert secret[8:28] not in clean(text)
    assert secret not in json.dumps(redacted_value({"a": [secret], secret: {"b": secret}}))


def test_only_a_hash_is_kept_and_nobody_else_can_read_it(folder: Path) -> None:
    tokens = Tokens(folder)
    token, secret = tokens.new("ci", Grants())
    assert secret is not None
    assert secret not in tokens.path.read_text()
    assert secret[10:30] not in tokens.path.read_text()
    assert mode(tokens.path) == 0o600
    assert mode(tokens.path.parent) == 0o700
    assert tokens.find(secret) == token
    assert tokens.find(secret[:-1]) is None
    assert tokens.find("") is None
    assert tokens.find(token.digest) is None
    assert tokens.find("\udc80é") is None
    assert Tokens(folder / "other").find(secret) is None, "it is of one project"


def test_what_was_granted_is_read_as_it_was_written(folder: Path) -> None:
    limits = {"budget": Limits(cost=2.5, delegations=10), "tree": Limits(tokens=1000), "timeout_seconds": 60.0, "max_depth": 2}
    rates = {"expires_at": 2e9, "requests_per_second": 1.5, "burst": 3, "request_bytes": 1000, "streams": 2}
    grants = Grants(doing=frozenset({Doing.DELEGATE, Doing.RELAY}), agents=("worker", "code*"), **limits, **rates)  # type: ignore[arg-type]
    assert grants_from_dict(json.loads(json.dumps(grants_to_dict(grants)))) == grants
    Tokens(folder).new("ci", grants)
    assert Tokens(folder).all()[0].grants == grants


@pytest.mark.parametrize("wrong", [{"doing": ["fly"]}, {"later": 1}, {"agents": "worker"}, {"max_depth": True}, {"budget": {"euros": 1}}])
def test_a_grant_that_is_not_understood_is_not_granted(wrong: dict[str, object]) -> None:
    with pytest.raises(ValueError):
        grants_from_dict({"doing": ["delegate"], **wrong})


def test_a_token_is_revoked_in_a_store_that_was_open_before(folder: Path) -> None:
    server, person = Tokens(folder), Tokens(folder)
    made, secret = person.new("ci", Grants())
    assert secret is not None
    found = server.find(secret)
    assert found is not None
    assert found.fault(made.created_at) is None
    assert [one.name for one in person.revoke("ci")] == ["ci"]
    found = server.find(secret)
    assert found is not None
    assert found.fault(made.created_at) == "revoked"
    assert person.revoke("ci") == []
    with pytest.raises(Misused, match="no token"):
        person.revoke("nobody")


def test_a_name_is_taken_while_its_token_holds_and_no_longer(folder: Path) -> None:
    tokens = Tokens(folder)
    tokens.new("ci", Grants())
    with pytest.raises(Refused, match="There is a token ci"):
        tokens.new("ci", Grants())
    tokens.revoke("ci")
    tokens.new("ci", Grants(expires_at=1.0))
    assert tokens.new("ci", Grants())[1]
    for bad in ("", "a b", "../x", "token:x", "a\n", "é"):
        with pytest.raises(Misused):
            tokens.new(bad, Grants())


def test_many_at_once_lose_none(folder: Path) -> None:
    def make(number: int) -> str | None:
        return Tokens(folder).new(f"t{number}", Grants())[1]

    with ThreadPoolExecutor(6) as pool:
        secrets = list(pool.map(make, range(24)))
    tokens = Tokens(folder)
    assert len(tokens.all()) == 24
    assert all(secret is not None and tokens.find(secret) is not None for secret in secrets)


def test_a_damaged_file_lets_nobody_in_and_is_set_aside_never_overwritten(folder: Path) -> None:
    tokens = Tokens(folder)
    _, secret = tokens.new("ci", Grants())
    assert secret is not None
    damaged = tokens.path.read_bytes()[:-40]
    tokens.path.write_bytes(damaged)
    assert tokens.find(secret) is None
    with pytest.raises(Unavailable, match="damaged"):
        tokens.revoke("ci")
    assert tokens.path.read_bytes() == damaged
    _, again = tokens.new("ci", Grants())
    assert again is not None
    assert tokens.find(again) is not None
    assert [path.read_bytes() for path in tokens.path.parent.glob("tokens.json.damaged-*")] == [damaged]


def test_a_file_that_others_can_open_is_not_believed(folder: Path) -> None:
    tokens = Tokens(folder)
    _, secret = tokens.new("ci", Grants())
    assert secret is not None
    assert tokens.find(secret) is not None
    tokens.path.chmod(0o660)
    assert tokens.find(secret) is None
    with pytest.raises(Refused, match="open to others"):
        tokens.new("more", Grants())
    tokens.path.chmod(0o600)
    assert tokens.find(secret) is not None
    moved = tokens.path.rename(folder / "elsewhere.json")
    tokens.path.symlink_to(moved)
    assert tokens.find(secret) is None


def test_when_a_token_was_last_used_is_kept_apart_from_what_is_looked_at(folder: Path) -> None:
    tokens = Tokens(folder)
    token, _ = tokens.new("ci", Grants())
    before = os.stat(tokens.path).st_mtime_ns
    tokens.used(token)
    assert Tokens(folder).last_used()[token.token_id] > 0
    assert os.stat(tokens.path).st_mtime_ns == before
    (tokens.path.parent / "used.json").write_text("[]")
    assert Tokens(folder).last_used() == {}


def test_the_local_token_is_its_owners_alone(folder: Path) -> None:
    server = LocalToken(folder)
    path = server.make()
    secret = local_token(folder)
    assert mode(path) == 0o600
    assert server.is_it(secret)
    assert not server.is_it(secret[:-1])
    assert not server.is_it("")
    assert LocalToken(folder).make() == path
    assert local_token(folder) == secret, "several servers of a project share it"
    path.unlink()
    assert not server.is_it(secret)
    assert not server.is_it("")
    assert not server.is_it("\0")
    with pytest.raises(Unavailable, match="remit serve"):
        local_token(folder)


def test_a_local_token_that_others_can_read_is_used_by_nobody(folder: Path) -> None:
    server = LocalToken(folder)
    path = server.make()
    secret = local_token(folder)
    path.chmod(0o644)
    assert not server.is_it(secret)
    with pytest.raises(Refused, match="open to others"):
        local_token(folder)
    server.make()
    assert local_token(folder) != secret
    assert not server.is_it(secret)
    assert server.is_it(local_token(folder))
