"""`coder.analyze_code`: any bytes in any language give facts; any names give a valid report."""

import json
import re

from hypothesis import given, settings
from hypothesis import strategies as st

from remit.builtin.coder.analysis.file_facts import read_source
from remit.builtin.coder.analysis.grammars import GRAMMARS
from remit.core.text import code_span, markdown_line

PIECES = st.sampled_from(
    [
        *["def f(", "class A:\n", "import ", "from . import ", "if ", "else ", "    ", "# TODO x\n", "/*", "*/", "//", "match ", "end"],
        *["use crate::{", "fn ", "mod a;", "#include <", "func ", "package ", "=>", "&&", "x", *"{}()\n\"'\\`<>\té\x00=;"],
    ]
)
SOURCES = st.one_of(
    st.binary(max_size=400),
    st.lists(PIECES, max_size=60).map(lambda parts: "".join(parts).encode()),
    st.sampled_from([b"", b"\n", b"\xff\xfe\x80" * 50, b"(" * 3_000, b"{[(" * 1_000, b"a" * 100_000, b'"' * 999, b"\r\n\t" * 50]),
)


@given(SOURCES, st.sampled_from([*sorted(GRAMMARS), "Ruby", "PHP", "Kotlin", "SQL", "text"]))
@settings(max_examples=100)
def test_any_bytes_in_any_language_give_facts(source: bytes, language: str) -> None:
    endings = {"Ruby": "rb", "PHP": "php", "Kotlin": "kt", "SQL": "sql"}
    facts = json.loads(json.dumps(read_source(source, language, f"some/file.{endings.get(language, 'x')}")))
    assert 0 <= facts["code"] <= facts["lines"]
    assert all(1 <= symbol["line"] <= symbol["endLine"] for symbol in facts.get("symbols", ()) if language in GRAMMARS)


@given(st.text(st.characters(), max_size=60) | st.sampled_from(["\ud800", "\udcff|", "`" * 3]))
def test_text_of_the_repository_cannot_inject_markdown(text: str) -> None:
    fence = re.match("`+", code_span(text))
    assert fence is not None
    assert len(re.findall(rf"(?<!`){fence[0]}(?!`)", code_span(text))) == 2
    assert "\n" not in code_span(text) + markdown_line(text)
