"""Trace and span ids are derived from session ids."""

from remit.core.ids import parse_traceparent

GIVEN = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def test_invalid_traceparent_is_ignored() -> None:
    zero, span = "0" * 32, "b7ad6b7169203331"
    wrong = [
        None, 7, b"x", "", "00", GIVEN + "-x", GIVEN.upper(), GIVEN + "\n", f"00-{zero}-{span}-01", f"00-{'a' * 32}-{'0' * 16}-01",
        "ff" + GIVEN[2:], " " + GIVEN, GIVEN.replace("0af", "0aٳ"), GIVEN + "-" + "x" * 10_000,
    ]  # fmt: skip
    assert [parse_traceparent(text) for text in wrong] == [None] * len(wrong)
    assert parse_traceparent(GIVEN) is not None
    assert str(parse_traceparent(GIVEN)) == GIVEN
    assert str(parse_traceparent("cc" + GIVEN[2:] + "-what-the-future-adds")) == GIVEN
    assert str(parse_traceparent(GIVEN[:-2] + "ff")) == GIVEN[:-2] + "03"
