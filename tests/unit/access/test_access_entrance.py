"""The entrance (issue 7 item 5): who comes in by what, who does not, what each is told, and what that costs in memory."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from remit.access.certificates import Certificate, checked_name, of_grpc, of_peer
from remit.access.entrance import FAILURES_BURST, NOTES_BURST, PEERS_KEPT, Entrance
from remit.access.limits import Buckets, RateLimited
from remit.access.local import local_token
from remit.access.visitor import OWNER, Doing, Grants
from remit.core.budget import Limits
from remit.core.clock import Clock
from remit.core.errors import Misused, Refused
from remit.settings.values import ServeSettings


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
def entrance(tmp_path: Path, time: Time, notes: list[Any]) -> Entrance:
    made = Entrance(
        tmp_path, ServeSettings(requests_per_second=10, burst=5, streams=2), note=notes.append, clock=Clock(monotonic=time, wall=time)
    )
    made.open()
    return made


def bearer(entrance: Entrance, name: str = "ci", **grants: Any) -> str:
    return f"Bearer {entrance.tokens.new(name, Grants(**grants))[1]}"


def refusal(enter: Callable[..., Any], **shown: Any) -> Refused:
    with pytest.raises(Refused) as found:
        enter(**shown)
    return found.value


def test_a_token_the_local_token_and_the_socket_let_in(entrance: Entrance, tmp_path: Path) -> None:
    visitor = entrance.enter(authorization=bearer(entrance, agents=("worker",), doing=frozenset({Doing.DELEGATE})))
    assert visitor.principal == "token:ci"
    assert visitor.grants.may_use("worker.read_file")
    assert not visitor.grants.may_use("coder.run")
    assert not visitor.may(Doing.SEE_ALL)
    assert not visitor.is_local
    assert entrance.enter(authorization=f"bearer {local_token(tmp_path)}") is OWNER
    assert entrance.enter(is_socket=True) is OWNER


def test_wrong_credentials_look_alike_to_whoever_shows_them_and_not_in_the_log(entrance: Entrance, notes: list[Any], time: Time) -> None:
    unknown = refusal(entrance.enter, authorization="Bearer rmt_" + "0" * 49)
    expired, revoked = bearer(entrance, "old", expires_at=time.now + 10), bearer(entrance, "gone")
    entrance.tokens.revoke("gone")
    time.now += 10
    others = [
        refusal(entrance.enter, authorization=expired, door="http", peer="127.0.0.1"),
        refusal(entrance.enter, authorization=revoked, door="grpc"),
        refusal(entrance.enter),
        refusal(entrance.enter, authorization="Basic eDp5"),
        refusal(entrance.enter, authorization="Bearer " + "x" * 100_000),
        refusal(entrance.enter, authorization="Bearer \udc80\n"),
        refusal(entrance.enter, authorization="Bearer rmd_x"),
        refusal(entrance.enter, certificate=Certificate(names=("ci.example.com",))),
    ]
    assert {(type(one), one.code, str(one)) for one in others} == {(Refused, "UNAUTHENTICATED", str(unknown))}
    said = [note["because"] for note in notes]
    assert said[:4] == ["unknown token", "expired token", "revoked token", "nothing was shown"]
    assert notes[1] == {
        "event": "turned_away", "principal": "token:old", "door": "http", "peer": "127.0.0.1", "because": "expired token",
    }  # fmt: skip
    assert all("rmt_" not in str(note) for note in notes)


def test_a_wrong_credential_is_refused_also_where_another_one_would_do(entrance: Entrance) -> None:
    refusal(entrance.enter, authorization="Bearer wrong", is_socket=True)
    refusal(entrance.enter, certificate=Certificate(names=("nobody",)), is_socket=True)


def test_a_flood_of_wrong_tokens_is_slowed_and_shuts_nobody_out(entrance: Entrance, notes: list[Any]) -> None:
    good = bearer(entrance)
    errors = [refusal(entrance.enter, authorization=f"Bearer {number}", peer="10.0.0.9") for number in range(3 * int(NOTES_BURST))]
    assert [one.code for one in errors[: int(FAILURES_BURST)]] == ["UNAUTHENTICATED"] * int(FAILURES_BURST)
    late = errors[-1]
    assert isinstance(late, RateLimited)
    assert late.code == "RATE_LIMITED"
    assert 0 < late.retry_after_seconds <= 1
    assert entrance.enter(authorization=good, peer="10.0.0.9").principal == "token:ci"
    assert refusal(entrance.enter, authorization="Bearer x", peer="10.0.0.8").code == "UNAUTHENTICATED"
    assert len(notes) <= NOTES_BURST


def test_what_was_not_noted_in_a_flood_is_counted(entrance: Entrance, notes: list[Any], time: Time) -> None:
    for number in range(int(NOTES_BURST) + 50):
        refusal(entrance.enter, authorization=f"Bearer {number}")
    time.now += 10
    refusal(entrance.enter, authorization="Bearer later")
    assert notes[-1]["more"] == 50


def test_a_flood_from_everywhere_is_not_remembered_for_ever(entrance: Entrance) -> None:
    for number in range(PEERS_KEPT + 500):
        refusal(entrance.enter, authorization="Bearer x", peer=f"peer {number}")
    assert len(entrance._failures) <= PEERS_KEPT


def test_one_principal_may_so_many_requests_and_says_when_to_come_again(entrance: Entrance, time: Time) -> None:
    visitor = entrance.enter(authorization=bearer(entrance, requests_per_second=2.0, burst=3))
    other = entrance.enter(authorization=bearer(entrance, "other"))
    for _ in range(3):
        entrance.admit(visitor)
    with pytest.raises(RateLimited) as found:
        entrance.admit(visitor)
    assert found.value.retry_after_seconds == pytest.approx(0.5)
    entrance.admit(other)
    time.now += 0.5
    entrance.admit(visitor)
    for _ in range(1000):
        entrance.admit(OWNER)


def test_the_budget_of_a_principal_counts_from_when_its_token_was_made(entrance: Entrance, time: Time) -> None:
    shown = bearer(entrance, budget=Limits(cost=2.0, seconds=60))
    time.now += 50
    budget = entrance.budget_of(entrance.enter(authorization=shown))
    assert budget is not None
    assert budget.lacks(time.now) is None
    assert budget.lacks(time.now + 10) == "60 s of wall clock"
    assert entrance.budget_of(OWNER) is None


def test_a_bucket_fills_again_and_clocks_that_go_back_give_nothing() -> None:
    time = Time()
    buckets = Buckets(time, most=3)
    assert [buckets.take("a", 1.0, 2) for _ in range(3)] == [0.0, 0.0, 1.0]
    time.now -= 100
    assert buckets.take("a", 1.0, 2) > 0
    for name in "bcde":
        buckets.take(name, 1.0, 2)
    assert len(buckets) == 3


async def test_a_stream_that_is_cancelled_by_its_own_side_stays_a_cancellation(entrance: Entrance) -> None:
    visitor = entrance.enter(authorization=bearer(entrance))

    async def follow() -> None:
        with entrance.stream(visitor):
            await asyncio.Event().wait()

    task = asyncio.create_task(follow())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert entrance._streams.count("token:ci") == 0


# ---- certificates


def granted_to(entrance: Entrance, name: str, certificate: str, **grants: Any) -> None:
    entrance.tokens.new(name, Grants(**grants), checked_name(certificate))


def test_a_certificate_is_let_in_only_where_something_was_granted_to_it(entrance: Entrance) -> None:
    shown = Certificate(names=("build.example.com", "Build"), fingerprint="ab" * 32)
    refusal(entrance.enter, certificate=shown)
    granted_to(entrance, "all", "*.example.com", agents=("worker",))
    visitor = entrance.enter(certificate=shown)
    assert visitor.principal == "cert:build.example.com"
    assert visitor.grants.agents == ("worker",)
    granted_to(entrance, "one", "Build")
    assert entrance.enter(certificate=shown).principal == "cert:Build", "a whole name counts before a pattern"
    granted_to(entrance, "pinned", "SHA256:" + ":".join(["AB"] * 32))
    assert entrance.enter(certificate=shown).principal == "cert:pinned"
    assert entrance.enter(certificate=Certificate(names=("pinned", "x.example.com"))).principal == "cert:x.example.com"
    for name in ("all", "one", "pinned"):
        entrance.tokens.revoke(name)
    refusal(entrance.enter, certificate=shown)


def test_a_certificate_is_no_token_nor_a_token_one(entrance: Entrance) -> None:
    granted_to(entrance, "box", "box")
    refusal(entrance.enter, authorization="Bearer box")
    refusal(entrance.enter, authorization="Bearer ")
    bearer(entrance, "plain")
    refusal(entrance.enter, certificate=Certificate(names=("plain",)))


def test_names_that_are_there_to_deceive_are_nobodys() -> None:
    peer = {
        "subject": ((("commonName", "a\0b"),), (("commonName", "ok"),)),
        "subjectAltName": (("DNS", "x\ny"), ("IP Address", "10.0.0.1"), ("URI", "spiffe://a/b"), ("DNS", "é")),
    }
    assert of_peer(peer) == Certificate(names=("spiffe://a/b", "ok"))
    assert of_peer({}) is None
    assert of_peer(None) is None
    assert of_grpc({"transport_security_type": [b"ssl"]}) is None
    shown = of_grpc({"x509_common_name": [b"box"], "x509_subject_alternative_name": [b"a.example.com", b"\xff"], "x509_pem_cert": [b"no"]})
    assert shown == Certificate(names=("a.example.com", "box"))
    for bad in ("", "sha256:12", "a\nb", "x" * 300):
        with pytest.raises(Misused):
            checked_name(bad)
