"""Caller tokens round-trip, altered tokens differ or are refused, and secrets are redacted."""

import contextlib
import string

from hypothesis import given
from hypothesis import strategies as st

from remit import Refused
from remit.core.ids import CallerToken, decode, new_secret, redact_token_bytes, redact_tokens

SESSIONS = st.builds(
    lambda seconds, end: f"sess_{seconds}_{end}",
    st.integers(10_000_000, 99_999_999_999),
    st.text(string.ascii_lowercase + string.digits, min_size=6, max_size=6),
)
PATHS = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=300).map(lambda rest: f"/{rest}")
TOKENS = st.builds(lambda session_id, address: CallerToken(session_id, new_secret(), address), SESSIONS, PATHS)


@given(TOKENS)
def test_token_round_trips_as_one_word(token: CallerToken) -> None:
    word = token.encode()
    assert decode(word) == token
    assert set(word) <= set(string.ascii_letters + string.digits + "._-")


@given(TOKENS, st.data())
def test_altered_token_is_refused_or_different(token: CallerToken, data: st.DataObject) -> None:
    word = token.encode()
    at = data.draw(st.integers(0, len(word)))
    altered = data.draw(
        st.sampled_from([word[:at] + word[at + 1 :], word[:at] + "x" + word[at:], word[:at] + "-" + word[at + 1 :], word[:at]])
    )
    if altered == word:
        return
    with contextlib.suppress(Refused):
        assert decode(altered) != token


@given(TOKENS, st.text(), st.text(), st.integers(1, 3))
def test_secrets_are_redacted_from_text(token: CallerToken, before: str, after: str, times: int) -> None:
    text = before + (token.encode() + after) * times
    assert token.secret not in redact_tokens(text)
    assert token.secret.encode() not in redact_token_bytes(text.encode("utf-8", "replace"))
    assert redact_tokens(text).count("[token]") >= times
