"""The verdict of a review."""

import pytest

from remit.builtin.coder.review.change import Change, ChangedFile
from remit.builtin.coder.review.report import Review


@pytest.mark.parametrize(("is_late", "verdict"), [(False, "looks fine"), (True, "worth a look")])
def test_a_review_without_findings_looks_fine_only_if_every_check_ran(is_late: bool, verdict: str) -> None:
    review = Review(change=Change(what="a diff", files=[ChangedFile(path="a.py")]), findings=(), is_late=is_late)
    assert (review.verdict, review.to_data()["verdict"]) == (verdict, verdict)
