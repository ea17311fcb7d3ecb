"""Rules for summaries."""

import pytest

from remit.runtime.validate import summary_faults, summary_warnings

GOOD = "Read the three modules. Wrote a report on them."


@pytest.mark.parametrize("summary", ["", "  \n", "x" * 501])
def test_empty_or_overlong_summary_is_invalid(summary: str) -> None:
    assert summary_faults(summary)


@pytest.mark.parametrize(
    ("summary", "about"),
    [
        (GOOD + " " + "word " * 90, "characters"),
        ("a.b.c " * 60 + ". Yes.", "tokens"),
        ("One sentence only.", "1 sentence;"),
        ("No end", "1 sentence;"),
        ("One. Two. Three. Four. Five. Six.", "6 sentences"),
        ("Wrote **much** of it. It works.", "markup"),
        ("# Done\nIt works. It does.", "markup"),
        ("- one thing. It works.", "markup"),
        ("See `x.py` for it. It works.", "markup"),
        ("See [it](http://x.y). It works.", "markup"),
        ("It is <b>done</b>. It works.", "markup"),
        ("It is done 🎉. It works.", "emoji"),
        ("It is done ✅. It works.", "emoji"),
    ],
)
def test_style_problems_are_warnings(summary: str, about: str) -> None:
    assert summary_faults(summary) == []
    assert any(about in warning for warning in summary_warnings(summary))
