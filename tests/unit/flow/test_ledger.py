"""Grouping of similar errors, for any text."""

import string

from hypothesis import given
from hypothesis import strategies as st

from remit.runtime.error_ledger import normalize_message

names = st.text(string.ascii_letters + string.digits + "_-", min_size=1, max_size=8)
numbers = st.one_of(
    st.integers(-(10**9), 10**9).map(str), st.floats(-1e6, 1e6, allow_nan=False).map(repr), st.integers(1000, 10**9).map("{:,}".format)
)
ids = st.one_of(
    st.tuples(st.integers(10**9, 2 * 10**9), st.text(string.ascii_lowercase + string.digits, min_size=6, max_size=6)).map(
        lambda parts: f"sess_{parts[0]}_{parts[1]}"
    ),
    st.uuids().map(str),
    st.uuids().map(lambda value: value.hex),
    st.integers(0, 2**48).map(hex),
)
paths = st.one_of(
    st.lists(names, min_size=2, max_size=4).map("/".join),
    st.lists(names, min_size=1, max_size=4).map(lambda parts: "/" + "/".join(parts)),
    st.lists(names, min_size=1, max_size=4).map(lambda parts: "./" + "/".join(parts) + ".md"),
    names.map(lambda name: f"{name}.py"),
)
quoted = st.text(st.characters(exclude_characters="\"\n'", exclude_categories=["Cs"]), max_size=12).flatmap(
    lambda text: st.sampled_from([f'"{text}"', f"'{text}'"])
)
words = st.sampled_from(["Task", "failed", "in", "after", "don't", "(see", "cannot", "open:", "agents'", "ended.", "it's"])

PARTS = {"number": st.one_of(numbers, ids), "path": paths, "text": quoted}


@st.composite
def twins(draw: st.DrawFn) -> tuple[str, str]:
    """Two messages that differ only in their numbers, ids, paths and quoted parts."""
    left, right = [], []
    for _ in range(draw(st.integers(1, 8))):
        kind = draw(st.sampled_from(["word", *PARTS]))
        if kind == "word":
            word = draw(words)
            left.append(word)
            right.append(word)
        else:
            end = draw(st.sampled_from(["", ".", ",", ":", ")"]))
            left.append(draw(PARTS[kind]) + end)
            right.append(draw(PARTS[kind]) + end)
    return " ".join(left), " ".join(right)


@given(twins())
def test_messages_that_differ_only_in_details_are_grouped(messages: tuple[str, str]) -> None:
    left, right = messages
    assert normalize_message(left) == normalize_message(right)
