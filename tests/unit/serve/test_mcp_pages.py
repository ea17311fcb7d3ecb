"""Answers fit the size limit of clients: any JSON is shortened with a note, and pages give the whole."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from remit.server.mcp.answers import LARGEST_BYTES, fitting, json_text, page_of

LEAVES = st.none() | st.booleans() | st.integers() | st.text(max_size=40) | st.sampled_from(["x" * 50_000, '"\\' * 20_000, "ü" * 30_000])
VALUES = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=30), inner, max_size=4), max_leaves=12
)
KEPT = {"session_id": "sess_1763200000_abc123", "state": "completed", "status": "completed", "summary": "Done."}


@given(data=VALUES, extra=VALUES, repeats=st.integers(1, 3000))
def test_every_document_fits_and_keeps_its_identifying_fields(data: Any, extra: Any, repeats: int) -> None:
    document = {**KEPT, "data": [data] * min(repeats, 50), "errors": [], "extra": extra, "artifacts": [{"path": "a"}] * repeats}
    short = fitting(document, "ask for the rest")
    assert len(json_text(short).encode()) <= LARGEST_BYTES
    assert {name: short[name] for name in KEPT} == KEPT
    assert short == document or short["shortened"] == "ask for the rest"


@given(text=st.text(max_size=300) | st.sampled_from(['"' * 60_000, "ü" * 50_000, "plain " * 12_000]), limit=st.integers(1, 100_000))
def test_pages_add_up_to_the_whole(text: str, limit: int) -> None:
    limit = max(limit, len(text) // 50, 1)
    whole, offset = "", 0
    while True:
        page = page_of(text, offset, limit)
        assert len(json_text(page).encode()) <= LARGEST_BYTES
        whole += page["text"]
        if "next_offset" not in page:
            break
        assert page["next_offset"] > offset
        offset = page["next_offset"]
    assert whole == text
