"""Every passage that the researcher quotes is in its source at the cited lines."""

from hypothesis import given, settings
from hypothesis import strategies as st

from remit.builtin.researcher.passages import Document
from remit.builtin.researcher.relevance import Index, Words
from remit.builtin.researcher.reports import Citations, Result, research_report

WORDS = ["heron", "keeps", "the", "queue", "in", "memory", "3.5", "e.g.", "`a_b`", "**bold**", "a|b", "Ärger", "“quoted”", "x = (1)", "…"]
MARKS = ["", "", "", "# ", "## ", "- ", "> ", "// ", "/* ", " * ", "    ", "| ", '"""', "1. ", "def f(): ", "MAX_QUEUE = "]
MARKS += ["    if memory == 3: ", "class Heron(", "  queue(", ")", "```", "---", "\t", "<!-- "]
ENDS = ["", ".", "?", ":", " */", " |", '"""', ".\r", "。", "\x0c", "\x1b[31m", "\u202e"]
line = st.builds(
    lambda mark, words, end: mark + " ".join(words) + end,
    st.sampled_from(MARKS),
    st.lists(st.sampled_from(WORDS), max_size=9),
    st.sampled_from(ENDS),
)
text = st.lists(line | st.text(max_size=60), max_size=30).map("\n".join)
name = st.sampled_from(["a.md", "b.py", "c.rst", "d.go", "e.toml", "f.txt", "LICENSE", "g.ts"])
documents = st.lists(st.tuples(st.sampled_from(["file", "page"]), name, text), min_size=1, max_size=4).map(
    lambda drawn: [Document(kind=kind, name=f"{number}/{named}", text=text_) for number, (kind, named, text_) in enumerate(drawn)]
)
QUESTIONS = ["How does heron keep the queue in memory?", "What is Ärger", 'Where is "a_b" and why?']
thorough = settings(max_examples=50)


@thorough
@given(documents=documents, question=st.sampled_from(QUESTIONS))
def test_each_quotation_is_in_its_source_and_inert_in_the_report(documents: list[Document], question: str) -> None:
    words, citations = Words(), Citations()
    index = Index(documents, words)
    ranked = index.choose(index.rank(words.parts(question)[0]), 8)
    for one in ranked:
        citations.cite(one.passage)
    for citation in citations:
        passage = citation.passage
        lines = passage.document.text.split("\n")[passage.line - 1 : passage.end_line]
        assert " ".join("\n".join(lines).split()).startswith(" ".join(passage.text.split()))
        assert 1 <= passage.line <= passage.end_line
    result = Result(query=question, citations=citations)
    searched = {"places": [], "filesListed": 0, "depth": 1, "maxDepth": 1, "children": 0}
    lists = dict.fromkeys(("queries", "webQueries", "files", "pages", "failures"), ())
    report = research_report(result, searched | lists)
    assert all(f"[{citation.number}]" in report for citation in citations)
    assert not {"\x1b", "\u202e", "\x0c"} & set(report)
