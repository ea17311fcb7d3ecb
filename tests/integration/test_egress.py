"""A model that has read files sends nothing out without approval; pages named by the user or a search stay accessible."""

import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import assistant_harness
import pytest
from web_server import Request, WebServer, answer, web_server

from remit import Context, Decision, PolicyRequest, Remit, Return, agent, ask
from remit.runtime.deps import TreeFacts, facts_of_records
from remit.testing import Call, Say
from support.audit import DEFAULT_RULES

SECRET = "the plan of the year"
INSIDE = 'when { context has address && context.address != "public" };'


class Person:
    """The user's answers at the terminal."""

    def __init__(self, *, says: bool) -> None:
        self.says = says
        self.questions: list[str] = []

    async def approve(self, request: PolicyRequest, decision: Decision, seconds: float) -> tuple[bool, str]:
        self.questions.append(decision.question)
        return self.says, "a person"


def delegate(target: str, operation: str, **parameters: Any) -> Call:
    return Call("delegate", target=target, operation=operation, parameters=parameters)


def read() -> Call:
    return delegate("worker", "read_file", path="plan.txt")


def fetch(url: str, **how: Any) -> Call:
    return delegate("worker", "web_fetch", url=url, **how)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """The default policy, with the loopback test server treated as a public host."""
    (tmp_path / "plan.txt").write_text(SECRET)
    (tmp_path / ".remit").mkdir()
    text = DEFAULT_RULES
    assert INSIDE in text
    (tmp_path / ".remit" / "policy.cedar").write_text(
        text.replace(INSIDE, INSIDE[:-1] + ' unless { context has host && context.host == "127.0.0.1" };')
    )
    return tmp_path


@pytest.fixture
def server() -> Iterator[WebServer]:
    page = "<html><body><p>About owls.</p><a href='/linked?id=7'>more</a></body></html>"
    with web_server({"/": answer(page, type_="text/html"), "/linked": answer("linked"), "/hits": answer("[]")}) as opened:
        yield opened


def outgoing(server: WebServer) -> list[Request]:
    return [received for received in server.requests if not received.path.startswith("/search")]


@asynccontextmanager
async def assistant(root: Path, *script: Any, **options: Any) -> AsyncIterator[Remit]:
    async with assistant_harness.project(root, [*script, Say("Done.")], **options) as (remit, _):
        yield remit


async def results(remit: Remit, returned: Return) -> list[Return]:
    records = [await remit.describe(one["taskId"]) for one in returned.data["delegations"]]
    return [record.result for record in records if record.result is not None]


@pytest.mark.parametrize(
    ("query", "how"),
    [
        ("", {"method": "POST", "body": SECRET}),
        ("", {"headers": {"X-Note": SECRET}}),
        ("", {"headers": {"Accept": SECRET}}),
        ("", {"headers": {"accept-language": SECRET}}),
        (f"?note={SECRET.replace(' ', '+')}", {}),
    ],
    ids=["body", "header", "accept", "language", "url"],
)
async def test_file_content_is_not_sent_to_a_host_named_by_the_user(
    project: Path, server: WebServer, query: str, how: dict[str, Any]
) -> None:
    async with assistant(project, read(), fetch(f"{server.url}/{query}", **how)) as remit:
        returned = await ask(remit, f"Read plan.txt, then look at {server.url}/")
        read_, sent = await results(remit, returned)
    assert read_.ok
    assert sent.errors[0].code == "POLICY_DENIED"
    assert "no person can be asked here" in sent.errors[0].message
    assert "ask-before-sending" in sent.errors[0].recommendation
    assert outgoing(server) == []


@agent("sender")
async def sender(ctx: Context, url: str) -> list[str]:
    """Uses the alternative spelling of a parameter."""
    await ctx.delegate("worker.read_file", path="plan.txt")
    tries = ({"URL": f"{url}/new"}, {"Url": url, "Body": SECRET, "method": "POST"}, {"url": url, "Headers": {"X-Note": SECRET}})
    return [(await ctx.delegate("worker.web_fetch", parameters=one)).errors[0].code for one in tries]


async def test_alternative_parameter_spelling_does_not_bypass_the_check(project: Path, server: WebServer) -> None:
    async with Remit.open(project, agents=[sender]) as remit:
        returned = await remit.delegate("sender", url=server.url)
    assert returned.data == ["POLICY_DENIED"] * 3
    assert outgoing(server) == []


async def test_file_read_in_an_earlier_message_is_not_sent_later(project: Path, server: WebServer) -> None:
    async with assistant_harness.project(project, [read(), Say("Read."), fetch(f"{server.url}/new"), Say("Done.")]) as (remit, _):
        first = await ask(remit, "Read plan.txt")
        second = await ask(remit, "Go on", conversation=first.data["conversation"])
        [sent] = await results(remit, second)
    assert sent.errors[0].code == "POLICY_DENIED"
    assert outgoing(server) == []


@agent("going_on")
async def going_on(ctx: Context, url: str) -> str:
    """Reads a file, stores it in a checkpoint, and sends it when resumed."""
    if ctx.saved is None:
        await ctx.checkpoint((await ctx.delegate("worker.read_file", path="plan.txt")).data["content"])
        return "read"
    return (await ctx.delegate("worker.web_fetch", url=f"{url}/?{ctx.saved}")).errors[0].code


async def test_file_read_before_a_resume_is_not_sent_after_it(project: Path, server: WebServer) -> None:
    async with Remit.open(project, agents=[going_on]) as remit:
        first = await remit.delegate("going_on", url=server.url)
        second = await remit.delegate("going_on", url=server.url, resume=first.session_id)
    assert second.data == "POLICY_DENIED", second
    assert outgoing(server) == []


async def test_urls_from_the_user_or_a_fetched_page_need_no_approval(project: Path, server: WebServer) -> None:
    script = [read(), fetch(f"{server.url}/"), fetch(f"{server.url}/linked?id=7"), Say("Done.")]
    async with assistant_harness.project(project, script) as (remit, _):
        returned = await ask(remit, f"Read plan.txt and {server.url}, and follow its link.")
        assert [one.ok for one in await results(remit, returned)] == [True, True, True]
        after_crash = facts_of_records(await remit.tree(returned.session_id), remit.directory.find)
    assert [received.path for received in outgoing(server)] == ["/", "/linked?id=7"]
    assert (after_crash.has_read_files, after_crash.has_read_untrusted) == (True, True)
    assert after_crash.describe_request(f"{server.url}/linked?id=7", "", {}, ())["known_url"]


async def test_search_results_need_no_approval(project: Path, server: WebServer) -> None:
    server.routes["/search"] = answer(json.dumps({"results": [{"url": f"{server.url}/linked?owl=1"}]}), type_="application/json")
    script = [read(), delegate("worker", "web_search", query="owls"), fetch(f"{server.url}/linked?owl=1"), Say("Done.")]
    async with assistant_harness.project(project, script, search={"providers": ["searxng"], "searxng_url": server.url}) as (remit, _):
        returned = await ask(remit, "Read plan.txt, then read about owls.")
        found = await results(remit, returned)
    assert [one.ok for one in found] == [True, True, True], found
    assert [received.path for received in outgoing(server)] == ["/linked?owl=1"]


@pytest.mark.parametrize("before", ["", " "])
async def test_url_in_a_search_query_is_not_a_search_result(project: Path, server: WebServer, before: str) -> None:
    server.routes["/search"] = answer('{"results": []}', type_="application/json")
    url = f"{server.url}/linked?note={SECRET.replace(' ', '+')}"
    script = [read(), delegate("worker", "web_search", query=before + url), fetch(url), Say("Done.")]
    async with assistant_harness.project(project, script, search={"providers": ["searxng"], "searxng_url": server.url}) as (remit, _):
        returned = await ask(remit, "Read plan.txt, then read about owls.")
        _, searched, sent = await results(remit, returned)
    assert searched.ok
    assert sent.errors[0].code == "POLICY_DENIED"
    assert outgoing(server) == []


@pytest.mark.parametrize("says", [True, False])
async def test_approval_is_asked_once_per_host(project: Path, server: WebServer, says: bool) -> None:
    person = Person(says=says)
    posts = [fetch(f"{server.url}/{path}", body="x", method="POST") for path in ("linked", "other")]
    async with assistant(project, read(), *posts, approver=person) as remit:
        await ask(remit, "Read plan.txt and report it.")
    assert len(person.questions) == (1 if says else 2)
    assert f"wants to send a request to {server.url}/linked" in person.questions[0]
    assert len(outgoing(server)) == (2 if says else 0)


@pytest.mark.parametrize(
    ("url", "text", "is_known"),
    [
        ("https://example.com/a", "see https://example.com/a.", True),
        ("https://example.com/a", "see example.com/a", True),
        ("https://example.com/", "see (https://example.com)", True),
        ("https://example.com/a?x=1", "see https://example.com/a", False),
        ("https://example.com/ab", "see https://example.com/a", False),
        ("https://evil.com/", "see notevil.com", False),
        ("https://evil.com/", "see www.evil.com.example", False),
        ("https://example.com.evil.org/", "see https://example.com", False),
    ],
)
def test_url_is_known_only_when_written_completely(url: str, text: str, is_known: bool) -> None:
    assert TreeFacts().describe_request(url, "", {"message": text}, ())["known_url"] is is_known
