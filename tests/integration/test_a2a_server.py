"""The A2A API, tested with the client of the SDK over both bindings."""

import asyncio
from collections.abc import AsyncIterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from a2a_harness import BINDINGS, Harness, a2a_harness, message, send, state_name
from grpc_harness import DELEGATE_ONLY

from remit import Context, agent
from support.server import Permission

pytestmark = pytest.mark.asyncio(loop_scope="module")
RUNS: list[str] = []


@agent("echo")
async def echo(ctx: Context, text: str, times: int = 1) -> dict[str, Any]:
    """Echo a text."""
    RUNS.append(text)
    ctx.progress("Listening.", 0.5)
    ctx.emit("piece")
    return {"said": text * times, "depth": ctx.depth, "path": list(ctx.path)}


@agent("slow")
async def slow(ctx: Context, note: str = "") -> str:
    ctx.progress("Sleeping.")
    await asyncio.sleep(60)
    return note


@agent("writer")
async def writer(ctx: Context) -> str:
    (ctx.scratch / "report.md").write_text("# found\n")
    ctx.artifact(ctx.scratch / "report.md", "report", "What was found.")
    return "written"


@agent("asks")
async def asks(ctx: Context, task: str) -> Any:
    RUNS.append(task)
    if task.startswith(("slowly", "colour")):
        await asyncio.sleep(60)
    if task == "paint":
        await ctx.checkpoint({"wall": 1})
        return {"status": "blocked", "summary": "Which colour?", "errors": [{"type": "input", "message": "Which colour is it to be?"}]}
    return f"painted {task} from {ctx.saved}"


AGENTS = (echo, slow, writer, asks)
LIST = {"jsonrpc": "2.0", "id": 1, "method": "ListTasks", "params": {}}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def harness(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Harness]:
    async with a2a_harness(tmp_path_factory.mktemp("a2a"), AGENTS) as opened:
        yield opened


async def one_task(client: Any, message: Any, **configuration: Any) -> Any:
    return (await send(client, message, **configuration))[-1].task


def data_in(task: Any, artifact_id: str = "result") -> Any:
    from google.protobuf.json_format import MessageToDict

    artifact = next(one for one in task.artifacts if one.artifact_id == artifact_id)
    part = artifact.parts[0]
    return part.text if part.WhichOneof("content") == "text" else MessageToDict(part.data)


async def test_stream_ends_with_artifacts_and_state(harness: Harness) -> None:
    for binding in BINDINGS:
        client = await harness.client(binding)
        events = await send(client, message(skill="writer", data={}))
        kinds = [event.WhichOneof("payload") for event in events]
        assert kinds[0] == "task", binding
        if len(kinds) > 1:  # a quick task may end before the first read
            assert state_name(events[-1].status_update) == "COMPLETED"
            files = [e.artifact_update.artifact for e in events if e.HasField("artifact_update")]
        else:
            files = list(events[0].task.artifacts)
        report = next(one for one in files if one.artifact_id == "file-1")
        assert (report.parts[0].raw, report.parts[0].filename, report.description) == (b"# found\n", "report.md", "What was found.")


async def test_task_that_asks_for_input_continues_under_its_id(harness: Harness) -> None:
    from a2a.types import CancelTaskRequest
    from a2a.utils.errors import InvalidParamsError, TaskNotCancelableError, UnsupportedOperationError

    RUNS.clear()
    for binding in BINDINGS:
        client = await harness.client(binding, streaming=False)
        waiting_task = await one_task(client, message("paint", skill="asks"))
        assert state_name(waiting_task) == "INPUT_REQUIRED"
        assert "Which colour is it to be?" in waiting_task.status.message.parts[0].text
        with pytest.raises(TaskNotCancelableError, match="waits for input"):
            await client.cancel_task(CancelTaskRequest(id=waiting_task.id))
        with pytest.raises(InvalidParamsError):
            await one_task(client, message("blue", task_id=waiting_task.id, context_id="another"))
        answers = [message("blue", task_id=waiting_task.id, message_id=f"answer-{binding}") for _ in range(2)]
        done = [await one_task(client, answer) for answer in answers]
        assert [state_name(task) for task in done] == ["COMPLETED", "COMPLETED"]
        assert {(task.id, task.context_id) for task in done} == {(waiting_task.id, waiting_task.context_id)}
        assert data_in(done[0]) == "painted blue from {'wall': 1}"
        with pytest.raises(UnsupportedOperationError):
            await one_task(client, message("red", task_id=waiting_task.id))
    assert RUNS == ["paint", "blue"] * 2


async def test_subscription_stays_open_while_a_task_asks_for_input(harness: Harness) -> None:
    from a2a.types import SubscribeToTaskRequest

    for binding in BINDINGS:
        client, follower = await harness.client(binding, streaming=False), await harness.client(binding)
        task = await one_task(client, message("paint", skill="asks"))
        events = follower.subscribe(SubscribeToTaskRequest(id=task.id))
        assert state_name((await anext(events)).task) == "INPUT_REQUIRED"
        rest = asyncio.create_task(_collect(events))
        assert state_name(await one_task(client, message("blue", task_id=task.id))) == "COMPLETED"
        async with asyncio.timeout(30):
            last = (await rest)[-1]
        assert state_name(getattr(last, last.WhichOneof("payload"))) == "COMPLETED", binding


async def _collect(events: Any) -> list[Any]:
    return [event async for event in events]


async def test_metadata_is_camel_case_with_iso_times(harness: Harness) -> None:
    task = await one_task(await harness.client(streaming=False), message(skill="echo", data={"text": "x"}))
    assert task.metadata["stopReason"] == "finished"
    facts = task.metadata["https://remit.dev/extensions/delegation/v1"]
    assert datetime.fromisoformat(facts["createdAt"]).tzinfo is not None
    assert [name for name in facts if not name.isalnum()] == []


async def test_reused_message_id_is_refused_without_an_internal_key(harness: Harness) -> None:
    from a2a.utils.errors import InvalidParamsError

    for binding in BINDINGS:
        client = await harness.client(binding, streaming=False)
        await one_task(client, message(skill="echo", data={"text": "x"}, message_id=f"one-{binding}"))
        with pytest.raises(InvalidParamsError, match=r"messageId.*belongs to another call") as refused:
            await one_task(client, message(skill="echo", data={"text": "y"}, message_id=f"one-{binding}"))
        assert "key:" not in str(refused.value)
        assert "a2a:" not in str(refused.value)


async def test_unsupported_protocol_version_is_refused_over_every_binding(harness: Harness) -> None:
    """A missing version means 0.3. A trailing slash makes no difference."""
    import httpx

    async with httpx.AsyncClient(headers={"Authorization": f"Bearer {harness.token()}"}) as http:
        for version in ("7.0", "0.3", None):
            headers = {} if version is None else {"a2a-version": version}
            assert (await http.post(f"{harness.url}/a2a/", json=LIST, headers=headers)).json()["error"]["code"] == -32009
            assert (await http.get(f"{harness.url}/a2a/v1/tasks", headers=headers)).status_code == 400
        assert "result" in (await http.post(f"{harness.url}/a2a/", json=LIST, headers={"a2a-version": "1.0"})).json()


async def test_public_card_shows_anonymous_callers_only_how_to_authenticate(tmp_path: Path) -> None:
    import httpx
    from a2a.types import GetExtendedAgentCardRequest

    path = "/.well-known/agent-card.json"
    async with a2a_harness(tmp_path / "near", AGENTS) as harness, httpx.AsyncClient() as http:
        answer = await http.get(f"{harness.url}{path}")
        card = answer.json()
        assert {skill["id"] for skill in card["skills"]} == {"echo", "slow", "writer", "asks"}
        assert [one["protocolBinding"] for one in card["supportedInterfaces"]] == list(BINDINGS)
        assert {one["protocolVersion"] for one in card["supportedInterfaces"]} == {"1.0"}
        assert card["capabilities"]["extensions"][0]["uri"] == "https://remit.dev/extensions/delegation/v1"
        assert (await http.get(f"{harness.url}{path}", headers={"If-None-Match": answer.headers["etag"]})).status_code == 304
    async with a2a_harness(tmp_path / "far", AGENTS, is_public=True) as harness, httpx.AsyncClient() as http:
        card = (await http.get(f"{harness.url}{path}")).json()
        assert [skill["id"] for skill in card["skills"]] == ["delegate"]
        assert card["securitySchemes"]["bearer"]["httpAuthSecurityScheme"]["scheme"] == "bearer"
        for binding in BINDINGS:
            client = await harness.client(binding, token=harness.token(f"narrow-{BINDINGS.index(binding)}", agents=("echo", "as*")))
            extended = await client.get_extended_agent_card(GetExtendedAgentCardRequest())
            assert {skill.id for skill in extended.skills} == {"echo", "asks"}


async def test_text_is_routed_only_to_an_agent_that_accepts_text(harness: Harness) -> None:
    from a2a.types import Message, Part, Role
    from a2a.utils.errors import ContentTypeNotSupportedError, InvalidParamsError

    for binding in BINDINGS:
        client = await harness.client(binding, streaming=False)
        task = await one_task(client, message("blue"))  # the only agent of the project that accepts text
        assert task.metadata["https://remit.dev/extensions/delegation/v1"]["target"] == "asks"
        with pytest.raises(InvalidParamsError, match="takes parameters, not text"):
            await one_task(client, message("hello", skill="echo"))
        with pytest.raises(InvalidParamsError, match="echo"):
            await one_task(client, message(data={"text": "hello"}))
        with pytest.raises(InvalidParamsError, match="Unknown argument 'key'"):
            await one_task(client, message(data={"target": "echo", "parameters": {"text": "x"}, "key": "k"}))
        with pytest.raises(InvalidParamsError, match="Unknown argument 'accept'"):  # acceptance commands would run on this machine
            await one_task(client, message(data={"target": "echo", "parameters": {"text": "x"}, "accept": ["true"]}))
        with pytest.raises(InvalidParamsError, match="must be an object"):
            await one_task(client, message(skill="echo", data={"parameters": [1]}))
        with pytest.raises(ContentTypeNotSupportedError):
            await one_task(client, Message(message_id="f", role=Role.ROLE_USER, parts=[Part(raw=b"x", filename="f")]))
    few = await harness.client(token=harness.token("few", agents=("echo",)), streaming=False)
    with pytest.raises(Exception, match="may not use slow"):
        await one_task(few, message(skill="slow", data={}))


# ---- answers of other callers, and clients whose token is revoked


async def test_one_of_concurrent_answers_is_accepted_and_can_be_cancelled(harness: Harness) -> None:
    """Otherwise two delegations would continue one task, and only one of them could be cancelled."""
    from a2a.types import CancelTaskRequest
    from a2a.utils.errors import A2AError

    before = len(harness.remit.engine.live())
    clients = [await harness.client(binding, streaming=False) for binding in BINDINGS]
    waiting_task = await one_task(clients[0], message("paint", skill="asks"))
    colours = [f"colour {number}" for number in range(6)]
    answers = [message(colour, task_id=waiting_task.id) for colour in colours]
    calls = [one_task(clients[number % 2], answer, return_immediately=True) for number, answer in enumerate(answers)]
    tasks = await asyncio.gather(*calls, return_exceptions=True)
    refused = [one for one in tasks if isinstance(one, A2AError)]
    assert (len(refused), len(harness.remit.engine.live())) == (5, before + 1), tasks
    assert state_name(await clients[0].cancel_task(CancelTaskRequest(id=waiting_task.id))) == "CANCELED"
    assert len(harness.remit.engine.live()) == before


async def test_task_that_waits_for_input_is_answered_by_its_own_caller_only(harness: Harness) -> None:
    from a2a.types import GetTaskRequest
    from a2a.utils.errors import A2AError

    own = await harness.client(token=harness.token("own"), streaming=False)
    sees_all = await harness.client(token=harness.token("sees", DELEGATE_ONLY | {Permission.SEE_ALL}), streaming=False)
    task = await one_task(own, message("paint", skill="asks"))
    assert state_name(await sees_all.get_task(GetTaskRequest(id=task.id))) == "INPUT_REQUIRED"
    with pytest.raises(A2AError, match="is not token:sees's"):
        await one_task(sees_all, message("red", task_id=task.id))


@pytest.mark.parametrize("binding", BINDINGS)
async def test_message_that_waits_ends_with_its_token(harness: Harness, binding: str) -> None:
    name, before = f"waits-{BINDINGS.index(binding)}", len(harness.remit.engine.live())
    client = await harness.client(binding, harness.token(name), streaming=False)
    waiting = asyncio.ensure_future(one_task(client, message("slowly", skill="asks")))
    while len(harness.remit.engine.live()) == before:  # noqa: ASYNC110 - there is no event to wait for
        await asyncio.sleep(0.01)
    harness.authenticator.tokens.revoke(name)
    async with asyncio.timeout(20):
        with pytest.raises(Exception, match=r"401|not authenticated|no longer valid"):
            await waiting
    assert len(harness.remit.engine.live()) == before + 1, "leaving ends no task"
