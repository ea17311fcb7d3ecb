"""Rules for summaries."""

import pytest

from remit.runtime.validate import count_sentences, summary_faults, summary_warnings

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


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("It took 3.5 s on x.py.", 1),
        ("Really?! Yes.", 2),
        ("Done… Good.", 2),
        ("完了しました。よい。", 2),
        ("He said “no.” We left.", 2),
    ],
)
def test_sentences_are_counted_correctly(text: str, count: int) -> None:
    assert count_sentences(text) == count
