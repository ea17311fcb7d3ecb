"""`researcher.*` with real workers: from a question to a report whose every sentence is found again (S5.2; issue item 4)."""

import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from code_corpus import CODE, CODE_QUESTIONS
from research_corpus import DOCUMENTS, QUESTIONS
from web_server import WebServer, answer, web_server

from remit import Remit, Return
from remit.agents.builtin.researcher.findings import weigh_up
from remit.agents.builtin.researcher.passages import Document, cut, worth_of
from remit.agents.builtin.researcher.question import Asks, taken_apart
from remit.agents.builtin.researcher.quoting import contains

ALLOWING = """
@id("agents-may-work")
permit (principal, action, resource);
"""
FLOOR = 13
CODE_FLOOR = 13


@pytest.fixture
def project(tmp_path: Path) -> Path:
    for name, text in DOCUMENTS.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    (tmp_path / ".remit").mkdir()
    (tmp_path / ".remit" / "policy.cedar").write_text(ALLOWING)
    return tmp_path


@pytest.fixture
async def remit(project: Path) -> AsyncIterator[Remit]:
    async with Remit.open(project) as opened:
        yield opened


@pytest.fixture
def server() -> Iterator[WebServer]:
    owls = "<p>A barn owl hunts at night by hearing alone. Its face is shaped like a dish and gathers sound.</p>"
    link = "<p>More is known about <a href='/owls/feathers'>feathers of owls</a>.</p>"
    feathers = "<p>The comb on the feathers of an owl breaks up the air, so that its flight makes no sound.</p>"
    pages = {"/owls": page("Owls", f"<h1>Owls</h1>{owls}{link}"), "/owls/feathers": page("Feathers", feathers)}
    with web_server({path: answer(text, type_="text/html; charset=utf-8") for path, text in pages.items()}) as running:
        yield running


def page(title: str, body: str) -> str:
    return f"<html><head><title>{title}</title></head><body><article>{body}</article></body></html>"


def report_of(project: Path, result: Return) -> str:
    assert [artifact.type for artifact in result.artifacts] == ["report"]
    return (project / result.artifacts[0].path).read_text()


def check_citations(project: Path, data: dict[str, Any], written: str) -> None:
    """Each file citation, looked up by hand."""
    for citation in data["citations"]:
        if citation["kind"] == "file":
            lines = (project / citation["path"]).read_text().split("\n")[citation["line"] - 1 : citation["endLine"]]
            assert contains("\n".join(lines), citation["quote"]), citation
        assert f"[{citation['number']}]" in written


def test_the_right_document_is_the_first_citation_for_most_questions() -> None:
    """The floor under later changes."""
    documents = [
        Document(kind="file", name=n, title="", text=t, worth=worth_of(n) or 0.3, passages=cut(t, n)) for n, t in DOCUMENTS.items()
    ]
    wrong = []
    for question, expected in QUESTIONS.items():
        answered, _ = weigh_up(taken_apart(question), documents)
        if not answered.answer or answered.answer[0].citation.document.name != expected:
            wrong.append(question)
    assert len(QUESTIONS) - len(wrong) >= FLOOR, wrong


def test_the_line_of_code_that_answers_is_the_first_quotation_for_most_questions_about_code() -> None:
    """Another floor: where nobody wrote the answer down in words."""
    documents = [Document(kind="file", name=n, title="", text=t, worth=worth_of(n) or 0.3, passages=cut(t, n)) for n, t in CODE.items()]
    wrong = []
    for question, expected in CODE_QUESTIONS.items():
        answered, _ = weigh_up(taken_apart(question), documents)
        if not answered.answer or expected not in answered.answer[0].citation.unit.text:
            wrong.append(question)
    assert len(CODE_QUESTIONS) - len(wrong) >= CODE_FLOOR, wrong


async def test_code_is_quoted_as_it_stands_with_file_and_lines(tmp_path: Path) -> None:
    for name, text in CODE.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    async with Remit.open(tmp_path) as remit:
        result = await remit.delegate("researcher.deep_research", query="How does kestrel decide which loop policy to use on Windows?")
    written = report_of(tmp_path, result)
    check_citations(tmp_path, result.data, written)
    assert "- `DefaultLoopPolicy = WindowsProactorLoopPolicy` [1] `kestrel/windows_loops.py:22`" in written
    assert "```py\n  if sys.platform == 'win32':\n      from .windows_loops import *\n  ```" in written
    assert [citation["code"] for citation in result.data["citations"] if "loops.py" in citation["path"]]


async def test_code_that_holds_marks_of_its_own_stays_in_its_block(tmp_path: Path) -> None:
    (tmp_path / "fence.py").write_text('if zebra == "crossing":\n    ```\n    ## Injected striped `x`\n    stripes = 7\n')
    async with Remit.open(tmp_path) as remit:
        result = await remit.delegate("researcher.deep_research", query="How many stripes has a zebra crossing?")
    written = report_of(tmp_path, result)
    assert "````" in written
    assert "\n## Injected" not in written
    assert result.data["citations"][0]["quote"].count("\n") == 3


async def test_a_question_is_answered_from_the_files_of_the_project(remit: Remit, project: Path) -> None:
    result = await remit.delegate("researcher.deep_research", query="What happens when the quota of a mailbox is reached?")
    assert (result.status, result.warnings) == ("completed", ()), result.errors
    data = result.data
    assert data["answer"][0]["text"].startswith("When the quota is reached, new messages are deferred for three days")
    assert (data["citations"][0]["path"], data["citations"][0]["line"]) == ("docs/quota.md", 3)
    written = report_of(project, result)
    check_citations(project, data, written)
    order = [written.index(f"## {name}") for name in ("Answer", "Findings", "What was not found", "What was searched", "Sources")]
    assert order == sorted(order)
    assert "`docs/quota.md:3`" in written
    assert "for you to judge" in result.summary
    assert "package-lock.json" not in data["searched"]["files"]


async def test_everything_is_looked_at_by_worker_children_and_nothing_by_itself(remit: Remit) -> None:
    result = await remit.delegate("researcher.deep_research", query="How are passwords stored, and who began Heron?")
    children = [record for record in await remit.history(limit=200) if record.parent_id == result.session_id]
    assert {record.agent for record in children} == {"worker.list_files", "worker.search_files", "worker.read_file"}
    assert len(children) == result.data["searched"]["children"] <= 60
    assert {finding["question"] for finding in result.data["findings"]} == {"How are passwords stored?", "Who began Heron?"}


async def test_what_no_source_says_is_said_to_be_missing(remit: Remit, project: Path) -> None:
    result = await remit.delegate("researcher.deep_research", query="How is Heron deployed on Kubernetes?")
    assert (result.status, result.errors[0].code) == ("partial", "NOT_FOUND")
    assert "kubernetes" in result.errors[0].message
    assert result.data["answer"] == []
    assert "“kubernetes”" in report_of(project, result)


async def test_no_quotation_is_read_twice_in_a_report(remit: Remit, project: Path) -> None:
    result = await remit.delegate("researcher.deep_research", query="How are passwords stored, and how are stored passwords reset?")
    written = report_of(project, result).partition("## What was not found")[0]
    assert "Quoted above: [1]" in written
    for citation in result.data["citations"]:
        assert written.count(f"” [{citation['number']}]") <= 1


async def test_where_nothing_was_found_it_is_told_how_much_was_searched(tmp_path: Path) -> None:
    for number in range(3):
        (tmp_path / f"{number}.md").write_text("Tea is brewed hot.\n")
    async with Remit.open(tmp_path) as remit:
        result = await remit.delegate("researcher.deep_research", query="How is coffee roasted?", sources=["files"])
    assert result.summary.startswith("No passage in 3 files searched (none of them read) holds enough of the question's words")
    assert "(3 files)" in report_of(tmp_path, result)


async def test_a_web_that_cannot_be_searched_is_named_and_the_files_are_searched_all_the_same(project: Path) -> None:
    (project / ".remit" / "policy.cedar").write_text(ALLOWING + '@id("no-web") forbid (principal, action in Action::"network", resource);')
    async with Remit.open(project) as remit:
        result = await remit.delegate("researcher.deep_research", query="Why are plain connections refused?", sources=["files", "web"])
    assert result.status == "completed", result.errors
    assert result.data["citations"][0]["path"] == "docs/tls.md"
    assert any("search the web" in failure for failure in result.data["searched"]["failures"])
    assert "### What could not be searched" in report_of(project, result)


async def test_pages_are_read_and_their_links_followed_to_the_depth_asked_for(remit: Remit, project: Path, server: WebServer) -> None:
    query = "How does an owl fly without a sound?"
    shallow = await remit.delegate("researcher.deep_research", query=query, sources=[f"{server.url}/owls"], max_depth=1)
    assert shallow.data["searched"]["pages"] == [f"{server.url}/owls"]
    deep = await remit.delegate("researcher.deep_research", query=query, sources=[f"{server.url}/owls"], max_depth=2)
    assert f"{server.url}/owls/feathers" in deep.data["searched"]["pages"]
    first = deep.data["citations"][0]
    assert (first["kind"], first["url"]) == ("page", f"{server.url}/owls/feathers")
    assert "no sound" in first["quote"]
    assert "fetched " in report_of(project, deep)


async def test_folders_that_lead_out_are_refused_by_the_worker_and_named(remit: Remit) -> None:
    result = await remit.delegate("researcher.deep_research", query="root password", sources=["../..", "docs:nowhere"])
    assert result.status in ("failed", "blocked")
    assert len(result.data["searched"]["failures"]) == 2
    assert result.data["citations"] == []


async def test_only_documents_are_read_when_docs_are_asked_for(remit: Remit) -> None:
    result = await remit.delegate("researcher.deep_research", query="When is a message returned to its sender?", sources="docs")
    assert result.data["searched"]["files"]
    assert all(path.startswith("docs/") or "/" not in path for path in result.data["searched"]["files"])


async def test_a_report_is_handed_in_when_time_is_short(remit: Remit, project: Path) -> None:
    result = await remit.delegate("researcher.deep_research", query="How are passwords stored?", timeout=0.9)
    assert result.status in ("partial", "completed")
    if result.status == "partial":
        assert result.errors[0].code == "TIMEOUT"


@pytest.mark.parametrize(("query", "code"), [("what is it?", "INVALID_PARAMETERS"), ("", "INVALID_PARAMETERS")])
async def test_a_question_without_a_word_to_look_for_is_refused(remit: Remit, query: str, code: str) -> None:
    result = await remit.delegate("researcher.deep_research", query=query)
    assert (result.status, result.errors[0].code) == ("failed", code)


async def test_sources_are_compared_and_every_statement_is_quoted(remit: Remit, project: Path) -> None:
    (project / "a.md").write_text("# Owls\n\nThe barn owl weighs about 400 g and lives for four years. It hunts mice at night.\n")
    (project / "b.md").write_text("The barn owl weighs about 500 g and lives for four years. At night it hunts mice.\n")
    sources = ["a.md", "b.md", {"title": "Letter", "text": "An owl was seen in the old tower on 3 May 2021."}]
    for form in ("summary", "table", "outline"):
        result = await remit.delegate("researcher.synthesize_sources", sources=sources, format=form)
        assert result.status == "completed", result.errors
        written = report_of(project, result)
        assert "weighs about 400 g" in written
        check_citations(project, result.data, written)
    assert [one["text"] for one in result.data["differing"][0]] == [
        "The barn owl weighs about 400 g and lives for four years.",
        "The barn owl weighs about 500 g and lives for four years.",
    ]
    assert {figure["figure"] for figure in result.data["figures"]} >= {"400 g", "500 g", "3 May 2021"}
    assert len(result.data["agreed"]) == 1
    as_json = await remit.delegate("researcher.synthesize_sources", sources=sources, format="json")
    assert json.loads((project / as_json.artifacts[0].path).read_text()) == as_json.data


async def test_a_source_that_cannot_be_read_is_named_beside_those_that_could(remit: Remit) -> None:
    result = await remit.delegate("researcher.synthesize_sources", sources=["README.md", "missing.md"])
    assert (result.status, result.errors[0].code) == ("partial", "SOURCE_UNREAD")
    assert "missing.md" in result.data["failures"][0]


def test_a_question_is_taken_apart_by_its_words() -> None:
    question = taken_apart('What is the difference between a soft deadline and a hard deadline, and who sets "max depth"?')
    assert [part.text for part in question.parts] == [
        "What is the difference between a soft deadline and a hard deadline?",
        "What is soft deadline?",
        "What is hard deadline?",
        'Who sets "max depth"?',
    ]
    assert question.parts[-1].asks is Asks.PERSON
    assert question.parts[-1].phrases == ("max depth",)


def test_comments_and_docstrings_stand_below_what_they_belong_to() -> None:
    code = 'def ask(\n    name: str,\n) -> None:\n    """Asks once."""\n\n\nLIMIT = {\n    "a": 1,\n}\n"""How often."""\n'
    code += 'x = """\n# no comment\n"""\n'
    placed = {unit.text: (passage.headings, unit.line) for passage in cut(code, "a.py") for unit in passage.units}
    assert placed["Asks once."] == (("ask",), 4)
    assert placed["How often."] == (("LIMIT",), 10)
    assert "no comment" not in placed


async def test_a_name_or_a_sentence_of_a_hostile_file_does_nothing_in_the_report(remit: Remit, project: Path) -> None:
    (project / "docs" / "pwn\n## Injected\n.md").write_text(
        "The zebra crossing ![x](http://evil.example/p.png) is <script>alert(1)</script> striped.\n"
    )
    (project / "docs" / "escape.md").write_text("A zebra crossing \x1b]0;owned\x07 is striped twice.\n")
    result = await remit.delegate("researcher.deep_research", query="Is the zebra crossing striped?")
    written = report_of(project, result)
    assert result.data["answer"], result.errors
    assert "\n## Injected" not in written
    assert "![x](" not in written
    assert "\\<script>" in written
    assert "\x1b" not in written
