"""Authorization at the HTTP and MCP APIs: work and agents of other callers, sockets."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import NoReturn

import pytest
import pytest_asyncio
from http_harness import Harness, http_harness

from remit import RemitError
from support.server import OWNER, Call, Delegations, Grants, Permission, Principal, Progress

ONLY = frozenset({Permission.DELEGATE})


pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def harness(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Harness]:
    async with http_harness(tmp_path_factory.mktemp("served")) as harness:
        yield harness


async def test_caller_sees_only_agents_it_may_use(harness: Harness) -> None:
    client = await harness.client(harness.token("eve", ONLY, agents=("text",)))
    for request in (
        {"target": "nosuch"},
        {"target": "slow", "parameters": {"nosuch": 1}},
        {"target": "slow", "operation": "nosuch"},
        {"operation": "nosuch"},
    ):
        answer = await client.post("/v1/tasks", json={"parameters": {}, **request})
        output = json.dumps({**answer.json(), "detail": ""})
        assert answer.status_code in (400, 404), output
        assert not any(f'"{name}"' in output or f"{name}," in output for name in ("slow", "loud", "fails", "seconds")), output
    assert (await client.post("/v1/tasks", json={"target": "slow", "parameters": {}})).status_code == 403


async def test_text_of_internal_errors_reaches_only_the_owner(harness: Harness, caplog: pytest.LogCaptureFixture) -> None:
    async def broken(*given: object) -> NoReturn:
        raise ValueError("cannot open /srv/private/records.db")

    tools = Delegations(harness.service, 5.0)
    tools.tools["list_agents"] = broken
    for principal, is_visible in ((Principal(name="token:a"), False), (OWNER, True)):
        answer = await tools.call("list_agents", {}, Progress(None, None), Call(principal=principal, api="mcp"))
        assert answer.is_error
        assert ("/srv/private" in str(answer)) is is_visible
        assert ("Internal server error" in str(answer)) is not is_visible
    assert "/srv/private" in caplog.text


async def test_see_all_does_not_permit_continuing_tasks_of_others(harness: Harness) -> None:
    """`resume` would take over the workspace of the other caller."""
    counts = {"target": "text", "operation": "count", "parameters": {"text": "x"}}
    own = Call(principal=Principal(name="token:a"), api="http")
    task_id = (await (await harness.service.begin(own, counts)).result()).session_id
    for doing, message in ((ONLY, "There is no task"), (ONLY | {Permission.SEE_ALL}, "not token:b's to continue")):
        other = Call(principal=Principal(name="token:b", grants=Grants(permissions=doing)), api="http")
        with pytest.raises(RemitError, match=message):
            await harness.service.begin(other, {**counts, "resume": task_id})


# ---- long polls


async def test_grant_of_an_agent_covers_no_agent_file_whose_name_begins_with_it(tmp_path: Path) -> None:
    """A project file chooses its own name; only operations of a target are covered by the name of the target."""
    folder = tmp_path / ".remit" / "agents"
    folder.mkdir(parents=True)
    for name in ("helper", "helper.x", "text.more"):
        (folder / f"{name}.md").write_text(f"---\nname: {name}\ndescription: Helps.\nremit: {{command: [cat]}}\n---\nHelp.\n")
    (folder / "other.py").write_text('from remit import agent\n\n\n@agent("helper.y")\nasync def y() -> int:\n    return 1\n')
    async with http_harness(tmp_path) as harness:
        client = await harness.client(harness.token("eve", ONLY, agents=("helper", "text")))
        listed = {one["name"] for one in (await client.get("/v1/agents")).json()["agents"]}
        assert listed == {"helper", "text.count"}
        for operation in ("x", "y"):
            answer = await client.post("/v1/tasks", json={"target": "helper", "operation": operation, "parameters": {"task": "Help."}})
            assert answer.status_code in (400, 403), answer.text
        full = await harness.client(harness.token("ada", ONLY, agents=("helper.x",)))
        assert [one["name"] for one in (await full.get("/v1/agents")).json()["agents"]] == ["helper.x"]
