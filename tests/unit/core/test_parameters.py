"""camelCase and snake_case name the same parameter."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remit import Misused, agent
from remit.core.parameters import camel_names, declared_name, declared_names

NAMES = st.lists(st.from_regex(r"[a-z_][a-zA-Z0-9_]{0,8}", fullmatch=True), unique=True, max_size=6)


@given(names=NAMES)
def test_emitted_spelling_resolves_to_its_own_name(names: list[str]) -> None:
    emitted = camel_names(names)
    assert [declared_name(emitted[name], names) for name in names] == names
    assert declared_names({emitted[name]: name for name in names}, names, "it") == {name: name for name in names}


def test_name_in_both_spellings_is_refused() -> None:
    with pytest.raises(Misused, match="max_depth is given twice, also as maxDepth") as caught:
        declared_names({"maxDepth": 1, "max_depth": 2}, ["max_depth"], "it")
    assert caught.value.code == "INVALID_PARAMETERS"


def test_functions_accept_either_spelling_and_prefer_their_own() -> None:

    @agent("both")
    async def both(max_depth: int, maxWidth: int = 0, **rest: int) -> None: ...

    assert both.check({"maxDepth": 1}) == {"max_depth": 1, "maxWidth": 0}
    assert both.check({"MaxDepth": 1, "max_width": 2, "moreOf": 3}) == {"max_depth": 1, "maxWidth": 2, "moreOf": 3}
    with pytest.raises(Misused, match="given twice"):
        both.check({"maxDepth": 1, "max_depth": 1})

    @agent("like")
    async def like(a_b: int, aB: int) -> None: ...

    assert like.check({"a_b": 1, "aB": 2}) == {"a_b": 1, "aB": 2}
    with pytest.raises(Misused, match="there is no such parameter"):
        like.check({"a_b": 1, "aB": 2, "A_b": 3})
