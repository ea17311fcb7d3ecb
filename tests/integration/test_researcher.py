"""`researcher.*` without a model, with real workers: answers are verbatim quotations of their sources."""

import importlib.util
import json
import shutil
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from web_server import WebServer, answer, web_server

from remit import Remit, Return

DOCUMENTS = {
    "README.md": "# Heron\n\nHeron is a mail server for small offices.\n",
    "docs/quota.md": (
        "# Quota\n\nWhen the quota is reached, new messages are deferred for three days and then returned to the sender.\n"
        "\nThe quota of a mailbox is 5 GB.\n"
    ),
    "docs/tls.md": "# TLS\n\nPlain connections are refused, because passwords would otherwise cross the network in the clear.\n",
    "docs/backup.md": "# Backup\n\nEvery night Heron writes a snapshot of all mailboxes to the backup folder.\n",
    "src/queue.py": "MAX_AGE_DAYS = 5\n\n\ndef next_attempt(attempt):\n    return (5, 15, 60)[attempt] if attempt < 3 else 240\n",
    "package-lock.json": '{"quota": "mailbox reached", "lockfileVersion": 3}\n',
}
"""Files of a fictional product, by path."""
PROGRAM_QUESTIONS = {
    "What is the default status code of RedirectResponse?": "status_code: int = 307",
    "Which exception is raised when a route name is not found?": "NoMatchFound",
    "What is the default minimum size for GZipMiddleware?": "minimum_size: int = 500",
    "Is the httpx client thread safe?": "shared between threads",
    "What is the default timeout of httpx?": "5.0",
    "What is the maximum number of redirects?": "= 20",
    "How is HTTP/2 enabled in httpx?": "http2",
    "Which error is raised when the body was not read?": "ResponseNotRead",
    "Where does StaticFiles refuse paths outside its directory?": "os.path.commonpath",
    "How are environment proxies read?": "getproxies",
}
"""Questions about the installed starlette and httpx, with words of the answer."""


ALLOWING = '@id("agents-may-work") permit (principal, action, resource);'
NO_WEB = '@id("no-web") forbid (principal, action in Action::"network", resource);'


def write_files(root: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    write_files(tmp_path, {**DOCUMENTS, ".remit/policy.cedar": ALLOWING})
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


async def ask(remit: Remit, query: str, **parameters: Any) -> Return:
    return await remit.delegate("researcher.deep_research", query=query, **parameters)


def report_of(project: Path, result: Return) -> str:
    assert [artifact.type for artifact in result.artifacts] == ["report"]
    return (project / result.artifacts[0].path).read_text()


def check_citations(project: Path, data: dict[str, Any], report: str) -> None:
    """Compare every file citation with its file."""
    for citation in data["citations"]:
        if citation["kind"] == "file":
            lines = (project / citation["path"]).read_text().split("\n")[citation["line"] - 1 : citation["endLine"]]
            assert citation["quote"].split() == " ".join(lines).split(), citation
        assert f"[{citation['number']}]" in report


async def test_question_is_answered_from_project_files(remit: Remit, project: Path) -> None:
    result = await ask(remit, "What happens when the quota is reached?")
    assert (result.status, result.warnings) == ("completed", ()), result.errors
    data = result.data
    assert "When the quota is reached, new messages are deferred for three days" in data["answer"][0]["text"]
    assert (data["citations"][0]["path"], data["citations"][0]["line"]) == ("docs/quota.md", 3)
    report = report_of(project, result)
    check_citations(project, data, report)
    order = [report.index(f"## {name}") for name in ("Answer", "Not found", "Searched", "Sources")]
    assert order == sorted(order)
    assert "`docs/quota.md:3`" in report
    assert "for you to judge" in result.summary
    assert "package-lock.json" not in data["searched"]["files"]
    for citation in data["citations"]:
        assert report.count(f"” [{citation['number']}]") <= 1, "no quotation is printed twice"
    children = [record for record in await remit.history(limit=200) if record.parent_id == result.session_id]
    assert {record.agent for record in children} == {"worker.list_files", "worker.search_files", "worker.read_file"}
    assert len(children) == data["searched"]["children"] <= 60


async def test_eight_of_ten_questions_about_real_packages_are_answered(tmp_path: Path) -> None:
    for name in ("starlette", "httpx"):
        found = importlib.util.find_spec(name)
        assert found.origin is not None
        shutil.copytree(Path(found.origin).parent, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    wrong = []
    async with Remit.open(tmp_path) as remit:
        for question, expected in PROGRAM_QUESTIONS.items():
            result = await ask(remit, question)
            if not any(expected in passage["text"] for passage in result.data["answer"][:2]):
                wrong.append(question)
            check_citations(tmp_path, result.data, report_of(tmp_path, result))
    assert len(wrong) <= 2, wrong


async def test_unanswered_question_is_reported_as_not_found(remit: Remit, project: Path) -> None:
    result = await ask(remit, "How is Heron deployed on Kubernetes?")
    assert (result.status, result.errors[0].code, result.warnings) == ("partial", "NOT_FOUND", ())
    assert "kubernetes" in result.errors[0].message
    assert result.data["answer"] == []
    assert "“kubernetes”" in report_of(project, result)
    nothing = await ask(remit, "Where do albatrosses nest?", sources=["files"])
    assert nothing.summary.startswith(f"No passage in {len(DOCUMENTS) - 1} files searched (none of them read)")


async def test_unreachable_sources_are_named_and_the_others_are_searched(project: Path) -> None:
    (project / ".remit" / "policy.cedar").write_text(ALLOWING + NO_WEB)
    async with Remit.open(project) as remit:
        result = await ask(remit, "Why are plain connections refused?", sources=["files", "web"])
        outside = await ask(remit, "root password", sources=["../.."])
    assert result.status == "completed", result.errors
    assert result.data["citations"][0]["path"] == "docs/tls.md"
    assert any("search the web" in failure for failure in result.data["searched"]["failures"])
    assert "## What could not be searched" in report_of(project, result)
    assert outside.status in ("failed", "blocked")
    assert (len(outside.data["searched"]["failures"]), outside.data["citations"]) == (1, [])


async def test_links_of_pages_are_followed_to_the_given_depth(remit: Remit, project: Path, server: WebServer) -> None:
    query = "How does an owl fly without a sound?"
    shallow = await ask(remit, query, sources=[f"{server.url}/owls"], max_depth=1)
    assert shallow.data["searched"]["pages"] == [f"{server.url}/owls"]
    deep = await ask(remit, query, sources=[f"{server.url}/owls"], max_depth=2)
    assert f"{server.url}/owls/feathers" in deep.data["searched"]["pages"]
    first = next(one for one in deep.data["citations"] if "no sound" in one["quote"])
    assert (first["kind"], first["url"]) == ("page", f"{server.url}/owls/feathers")


async def test_hostile_names_and_text_are_escaped_in_the_report(remit: Remit, project: Path) -> None:
    write_files(
        project,
        {
            "docs/pwn\n## Injected\n.md": "The zebra crossing ![x](http://evil.example/p.png) is <script>alert(1)</script> striped.\n",
            "docs/escape.md": "A zebra crossing \x1b]0;owned\x07 is striped twice.\n",
            "fence.py": 'if zebra == "crossing":\n    ```\n    ## Injected striped `x`\n    stripes = 7\n',
        },
    )
    result = await ask(remit, "Is the zebra crossing striped?")
    report = report_of(project, result)
    assert len(result.data["answer"]) >= 3, result.errors
    assert "\n## Injected" not in report
    assert "![x](" not in report
    assert "\\<script>" in report
    assert "````" in report
    assert "\x1b" not in report + json.dumps(result.data, ensure_ascii=False)


async def test_synthesis_compares_and_quotes_sources(remit: Remit, project: Path) -> None:
    write_files(
        project,
        {
            "a.md": "# Owls\n\nThe barn owl weighs about 400 g.\n\n## Food\n\nIt hunts mice at night.\n",
            "b.md": "The barn owl weighs about 500 g.\n\nIt hunts mice at\nnight.\n",
        },
    )
    sources = ["a.md", "b.md", {"title": "Letter", "text": "An owl was seen in the old tower on 3 May 2021."}]
    for form in ("summary", "table", "outline"):
        result = await remit.delegate("researcher.synthesize_sources", sources=sources, format=form)
        assert result.status == "completed", result.errors
        report = report_of(project, result)
        assert all(words in report for words in ("weighs about 400 g", "weighs about 500 g", "in the old tower"))
        check_citations(project, result.data, report)
    assert [[one["source"] for one in group] for group in result.data["agreed"]] == [["a.md", "b.md"]]
    assert [one["text"] for one in result.data["single"]["Letter"]] == [sources[2]["text"]]  # type: ignore[index]
    as_json = await remit.delegate("researcher.synthesize_sources", sources=sources, format="json")
    assert json.loads((project / as_json.artifacts[0].path).read_text()) == as_json.data
