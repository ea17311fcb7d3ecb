"""Values of agents are converted to JSON in bounded time, or refused."""

import itertools
from typing import Any

import pytest

from remit import Failed
from remit.core.jsonable import clean_text, to_jsonable


@pytest.mark.parametrize("endless", [itertools.count(), {"a": [itertools.repeat(1)]}], ids=["bare", "in a list"])
def test_iterator_is_refused_at_any_depth(endless: Any) -> None:
    with pytest.raises(Failed, match="may never end"):
        to_jsonable(endless)


def test_cyclic_value_is_refused() -> None:
    circle: list[Any] = []
    circle.extend([circle, circle])
    with pytest.raises(Failed, match="nested deeper"):
        to_jsonable(circle)


@pytest.mark.parametrize("secret", ["rmt_" + "a" * 16, "rmtk_" + "a" * 43, "rmd_" + "a" * 60])
def test_shortest_secrets_are_redacted_anywhere(secret: str) -> None:
    assert clean_text(secret) == "[token]"
    assert to_jsonable({secret: [secret, (secret,), {"a": f"x {secret} y"}]}) == {"[token]": ["[token]", ["[token]"], {"a": "x [token] y"}]}
