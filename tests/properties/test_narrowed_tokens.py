"""Tokens of delegations only narrow (issue 7 item 5): whatever is added to one, by our function or by hand, allows nothing more."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from remit.access.delegating import Delegated, DelegationKey, Narrower, narrowed
from remit.access.scopes import Scopes
from remit.access.visitor import Grants
from remit.core.budget import Budget, Limits

pytest.importorskip("biscuit_auth")

SESSION = "sess_1790000000_abcdef"
NAMES = ("worker", "worker.read_file", "worker.write_file", "coder.run", "digest")
quick = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])

patterns = st.lists(st.sampled_from(["*", "worker", "worker.*", "*.read_file", "coder.r?n", "di*", "nothing"]), min_size=1, max_size=3)
budgets = st.builds(
    Limits,
    delegations=st.none() | st.integers(0, 10),
    tokens=st.none() | st.integers(0, 1000),
    cost=st.none() | st.floats(0, 10),
)
blocks = st.fixed_dictionaries(
    {},
    optional={
        "depth": st.integers(-1, 5),
        "deadline_at": st.floats(0, 4e9),
        "budget": budgets.filter(lambda limits: limits != Limits()),
        "operations": patterns,
    },
).filter(bool)
by_hand = st.lists(
    st.sampled_from(
        [
            'session("sess_1790000000_zzzzzz");', "attempt(7);", 'holder("token:me");', 'project("mine");', "depth(9);", "depth(-9);",
            "deadline_ms(999999999999999);", 'operation("*");', "depth(true);", "depth($d) <- depth($e);", "check if true;",
            "depth(9), depth(8);", "allow if true;", "max_depth(1);", 'operation("a\\");\\nsession(\\"x");', "tokens(99999999999);",
            "trusting previous;", "",
        ]
    ),
    max_size=3,
)  # fmt: skip


@pytest.fixture(scope="module")
def key(tmp_path_factory: pytest.TempPathFactory) -> DelegationKey:
    return DelegationKey(tmp_path_factory.mktemp("narrowed"))


def allows(token: Delegated, depth: int, at: float, name: str) -> bool:
    """Whether a child of this depth, at this time, may be asked for."""
    is_deep = token.depth is not None and depth > token.depth
    is_late = token.deadline_at is not None and at >= token.deadline_at
    return not is_deep and not is_late and Grants(within=token.operations).may_use(name)


def left_of(token: Delegated) -> Limits:
    whole = Budget(Limits(delegations=8, tokens=500, cost=5.0), opened_at=0.0)
    return (Scopes(lambda _session, _attempt: True).of(token, whole, 0.0) or whole).left(0.0)


def is_within(inner: Delegated, outer: Delegated) -> None:
    assert (inner.session_id, inner.attempt, inner.holder) == (outer.session_id, outer.attempt, outer.holder)
    for depth in range(-1, 7):
        for at in (0.0, 1e9, 2e9, 3.9e9):
            for name in NAMES:
                assert not allows(inner, depth, at, name) or allows(outer, depth, at, name)
    for kind, most in left_of(outer).to_dict().items():
        left = left_of(inner).to_dict()[kind]
        assert most is None or (left is not None and left <= most)


@quick
@given(first=st.none() | blocks, chain=st.lists(blocks, min_size=1, max_size=5))
def test_no_chain_of_blocks_widens_a_token(key: DelegationKey, first: dict[str, Any] | None, chain: list[dict[str, Any]]) -> None:
    begun = {**(first or {})}
    if "operations" in begun:
        begun["operations"] = tuple(begun["operations"])
    token = key.sign(SESSION, 1, "token:ci", Narrower(**begun))
    outer = key.read(token)
    for block in chain:
        token = narrowed(token, **block)
        inner = key.read(token)
        is_within(inner, outer)
        outer = inner


@quick
@given(first=blocks, code=by_hand)
def test_no_block_that_is_made_by_hand_widens_a_token(key: DelegationKey, first: dict[str, Any], code: list[str]) -> None:
    """By whoever knows how biscuits are made, and leaves our function aside: refused, or narrower."""
    import biscuit_auth

    begun = {**first}
    if "operations" in begun:
        begun["operations"] = tuple(begun["operations"])
    token = key.sign(SESSION, 1, "token:ci", Narrower(**begun))
    outer = key.read(token)
    held = biscuit_auth.Biscuit.from_base64(_body(token), key._key(makes=False).public_key)
    try:
        made = held.append(biscuit_auth.BlockBuilder(" ".join(code)))
    except biscuit_auth.DataLogError:
        return
    try:
        inner = key.read(f"{token[:47]}{made.to_base64().rstrip('=')}")
    except ValueError:
        return
    is_within(inner, outer)


@quick
@given(place=st.integers(0, 10_000), other=st.integers(1, 63), end=st.integers(0, 400))
def test_a_token_that_was_altered_or_cut_off_anywhere_is_none(key: DelegationKey, place: int, other: int, end: int) -> None:
    alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
    token = narrowed(key.sign(SESSION, 1, None, Narrower(depth=3)), depth=2)
    place = place % len(token)
    letter = alphabet[(alphabet.index(token[place]) + other) % 64]
    for altered in (token[:place] + letter + token[place + 1 :], token[: -1 - end], token + letter, token + "="):
        with pytest.raises(ValueError, match="token"):
            key.read(altered)


def test_a_token_of_another_project_or_of_a_key_that_was_replaced_is_foreign(tmp_path: Path) -> None:
    ours, theirs = DelegationKey(tmp_path / "a"), DelegationKey(tmp_path / "b")
    token = ours.sign(SESSION, 1, None, Narrower())
    theirs.sign(SESSION, 1, None, Narrower())
    with pytest.raises(ValueError, match="another project"):
        theirs.read(token)
    their_key = theirs.sign(SESSION, 1, None, Narrower())[4:47]
    with pytest.raises(ValueError, match="forged"):
        theirs.read(f"rmd_{their_key}{token[47:]}")
    assert ours.read(token).session_id == SESSION
    (tmp_path / "a" / "access" / "delegation.key").unlink()
    ours.sign(SESSION, 1, None, Narrower())
    with pytest.raises(ValueError, match="another project"):
        ours.read(token)


def test_what_was_made_of_one_token_shares_what_that_one_has(key: DelegationKey) -> None:
    """The budget of a token is that of all tokens made of it together, however often each is narrowed."""
    scopes, whole = Scopes(lambda _session, _attempt: True), Budget(Limits(), opened_at=0.0)
    token = narrowed(key.sign(SESSION, 1, None, Narrower()), budget={"delegations": 3})
    made = [narrowed(token, budget={"delegations": 2}) for _ in range(3)]
    first, second, third = (scopes.of(key.read(one), whole, 0.0) for one in made)
    assert first is not None
    assert second is not None
    assert third is not None
    for scope in (first, first, second):
        assert scope.lacks(0.0) is None
        scope.enter()
    assert first.lacks(0.0) == "2 delegations in all"
    assert third.lacks(0.0) == "3 delegations in all"
    assert scopes.of(key.read(made[0]), whole, 0.0) is first
    assert whole.delegations == 3


def _body(token: str) -> str:
    body = token[47:]
    return body + "=" * (-len(body) % 4)
