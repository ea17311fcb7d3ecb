"""Untrusted text in prompts is fenced and cannot close its own fence."""

import re

from hypothesis import given
from hypothesis import strategies as st

from remit.core.text import fence_untrusted


@given(text=st.text(), label=st.text())
def test_fence_contains_the_whole_text_and_cannot_be_closed_from_inside(text: str, label: str) -> None:
    fenced = fence_untrusted(text, place=label)
    found = re.fullmatch(r'<(material-\w+) place="[^"<>\n]*">\n(.*)\n</\1>', fenced, re.DOTALL)
    assert found is not None
    assert found[2] == text
    assert found[1] not in text
    assert fence_untrusted(text, place=label) == fenced
