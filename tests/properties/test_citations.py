"""Every sentence the researcher hands back stands where its citation says: for any documents, any questions, any sources compared."""

import re

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from remit.agents.builtin.researcher.citing import Citation, Citations
from remit.agents.builtin.researcher.comparing import compare
from remit.agents.builtin.researcher.findings import weigh_up
from remit.agents.builtin.researcher.passages import Document, cut
from remit.agents.builtin.researcher.question import taken_apart
from remit.agents.builtin.researcher.quoting import shown
from remit.agents.builtin.researcher.report import Searched, as_data, report
from remit.agents.builtin.researcher.synthesis_report import Synthesis

WORDS = [
    "heron",
    "keeps",
    "the",
    "queue",
    "in",
    "memory",
    "3.5",
    "e.g.",
    "`a_b`",
    "**bold**",
    "a|b",
    "It",
    "is",
    "Ärger",
    "“quoted”",
    "x = (1)",
    "…",
]
MARKS = [
    "",
    "",
    "",
    "# ",
    "## ",
    "- ",
    "* ",
    "> ",
    "// ",
    "/* ",
    " * ",
    "    ",
    "| ",
    '"""',
    "1. ",
    "def f(): ",
    "MAX_QUEUE = ",
    "    if memory == 3: ",
    "class Heron(",
    "  queue(",
    ")",
    "```",
    "---",
    "\t",
    "<!-- ",
]
ENDS = ["", ".", "?", "!", ":", " */", " |", '"""', ".\r", "。", "\x0c", "\x1b[31m", "\u202e"]

sentence = st.builds(lambda mark, words, end: mark + " ".join(words) + end, st.sampled_from(MARKS),
                     st.lists(st.sampled_from(WORDS), max_size=9), st.sampled_from(ENDS))  # fmt: skip
wild = st.text(max_size=60)
text = st.lists(sentence | wild, max_size=25).map("\n".join)
name = st.sampled_from(["a.md", "b.py", "c.rst", "d.go", "e.toml", "f.txt", "x.page", "LICENSE", "g.ts"])


def document(kind: str, named: str, number: int, said: str) -> Document:
    return Document(kind=kind, name=f"{number}/{named}", title="", text=said, passages=cut(said, named))


documents = st.lists(st.tuples(st.sampled_from(["file", "page"]), name, text), min_size=1, max_size=4).map(
    lambda drawn: [document(kind, named, number, said) for number, (kind, named, said) in enumerate(drawn)]
)
thorough = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def words_only(said: str) -> str:
    """An own, cruder reading than the one under test: nothing but letters and digits, in order."""
    return re.sub(r"[\W_]+", "", said)


def holds(citation: Citation) -> bool:
    lines = citation.document.text.split("\n")[citation.unit.line - 1 : citation.unit.end_line]
    assert 1 <= citation.unit.line <= citation.unit.end_line <= len(citation.document.text.split("\n"))
    return words_only(citation.unit.text) in words_only("\n".join(lines))


def stands_in(written: str, citation: Citation) -> bool:
    """Words in quotation marks; a line of code as a code span, several of them as a block."""
    said = citation.unit.text
    if not citation.unit.is_code:
        return f"“{shown(said)}” [{citation.number}]" in written
    if "\n" not in said:
        return f"{said}" in written and f"[{citation.number}]" in written
    return "\n".join(f"  {line}".rstrip() for line in said.split("\n")) in written and f"- [{citation.number}]" in written


def stands_as_it_is(citation: Citation) -> bool:
    """Of code every line, character by character, but for the indent that all share and what is white at their ends."""
    lines = [line.rstrip() for line in citation.document.text.split("\n")[citation.unit.line - 1 : citation.unit.end_line]]
    return [line.strip() for line in lines] == [line.strip() for line in citation.unit.text.split("\n")]


@thorough
@given(
    documents=documents, question=st.sampled_from(["How does heron keep the queue in memory?", "What is Ärger", 'Where is "a_b" and why?'])
)
def test_each_citation_of_a_research_really_contains_its_quote(documents: list[Document], question: str) -> None:
    result, _ = weigh_up(taken_apart(question), documents)
    assert all(holds(citation) for citation in result.citations)
    assert all(stands_as_it_is(citation) for citation in result.citations if citation.unit.is_code)
    cited = {citation.number: citation.unit.text for citation in result.citations}
    data = as_data(result, Searched())
    for one in [*data["answer"], *(quote for finding in data["findings"] for quote in finding["sentences"])]:
        assert one["text"] == cited[one["citation"]]
    written = report(result, Searched())
    assert all(stands_in(written, citation) for citation in result.citations)
    assert "\x1b" not in written
    assert "\u202e" not in written


@thorough
@given(documents=documents)
def test_each_statement_of_a_synthesis_really_stands_in_its_source(documents: list[Document]) -> None:
    citations = Citations()
    synthesis = Synthesis(documents, compare(documents), citations, [])
    for form in ("summary", "table", "outline"):
        written = synthesis.markdown(form)
        assert "\x1b" not in written
    assert all(holds(citation) for citation in citations.all())


@settings(max_examples=150, deadline=None)
@given(said=text, named=name)
def test_sentences_of_any_text_stand_on_the_lines_they_are_said_to(said: str, named: str) -> None:
    lines = said.split("\n")
    for passage in cut(said, named):
        for unit in passage.units:
            assert words_only(unit.text) in words_only("\n".join(lines[unit.line - 1 : unit.end_line]))
