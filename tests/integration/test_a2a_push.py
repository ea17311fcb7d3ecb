"""Push notifications of A2A: kept, sent in order, sent again, and never to where they must not go."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from a2a_stage import BINDINGS, a2a_stage, said, sent, state_name
from hostile_http import Heard, hostile, respond

from remit import agent

HOLD = asyncio.Event


@agent("quick")
async def quick() -> str:
    return "done"


@agent("slow")
async def slow() -> str:
    await asyncio.sleep(60)
    return "never"


@agent("asks")
async def asks(task: str) -> Any:
    if task == "paint":
        return {"status": "blocked", "summary": "Which colour?", "errors": [{"type": "input", "message": "Which colour?"}]}
    return task


AGENTS = (quick, slow, asks)
INSIDE = {"serve": {"push_inside": True}}


async def take(_heard: Heard, writer: asyncio.StreamWriter) -> None:
    await respond(writer, 200)


def states(heard: list[Heard]) -> list[str]:
    told = [one.json["statusUpdate"]["status"]["state"] for one in heard if "statusUpdate" in one.json]
    return [name.removeprefix("TASK_STATE_") for name in told]


def config(url: str, **more: Any) -> Any:
    from a2a.types import TaskPushNotificationConfig

    return TaskPushNotificationConfig(url=url, **more)


async def test_state_changes_are_pushed_in_order_with_the_token(tmp_path: Path) -> None:
    from a2a.types import AuthenticationInfo

    async with hostile(take) as web, a2a_stage(tmp_path, AGENTS, **INSIDE) as stage:
        client = await stage.client(streaming=False)
        wanted = config(f"{web.url}/hook", token="t-1", authentication=AuthenticationInfo(scheme="Bearer", credentials="c-1"))
        events = await sent(client, said(skill="quick", data={}), task_push_notification_config=wanted)
        await web.until(3)
        assert states(web.heard) == ["WORKING", "COMPLETED"]
        assert "artifactUpdate" in web.heard[1].json
        first = web.heard[0]
        assert (first.headers["x-a2a-notification-token"], first.headers["authorization"], first.path) == ("t-1", "Bearer c-1", "/hook")
        assert first.json["statusUpdate"]["taskId"] == events[-1].task.id


async def test_configs_are_made_read_listed_and_deleted_over_every_binding(tmp_path: Path) -> None:
    from a2a.types import (
        CancelTaskRequest,
        DeleteTaskPushNotificationConfigRequest,
        GetTaskPushNotificationConfigRequest,
        ListTaskPushNotificationConfigsRequest,
    )
    from a2a.utils.errors import TaskNotFoundError

    async with hostile(take) as web, a2a_stage(tmp_path, AGENTS, **INSIDE) as stage:
        other = await stage.client(token=stage.token("other"))
        for binding in BINDINGS:
            client = await stage.client(binding, streaming=False)
            task = (await sent(client, said(skill="slow", data={}), return_immediately=True))[-1].task
            made = await client.create_task_push_notification_config(config(web.url, task_id=task.id, token="t"))
            assert (made.url, made.task_id, bool(made.id)) == (web.url, task.id, True), binding
            again = await client.get_task_push_notification_config(GetTaskPushNotificationConfigRequest(task_id=task.id, id=made.id))
            assert again == made
            listed = await client.list_task_push_notification_configs(ListTaskPushNotificationConfigsRequest(task_id=task.id))
            assert list(listed.configs) == [made]
            with pytest.raises(TaskNotFoundError):
                await other.list_task_push_notification_configs(ListTaskPushNotificationConfigsRequest(task_id=task.id))
            await web.until(1)
            await client.delete_task_push_notification_config(DeleteTaskPushNotificationConfigRequest(task_id=task.id, id=made.id))
            with pytest.raises(TaskNotFoundError):
                await client.get_task_push_notification_config(GetTaskPushNotificationConfigRequest(task_id=task.id, id=made.id))
            await client.cancel_task(CancelTaskRequest(id=task.id))
            assert states(web.heard) == ["WORKING"]
            web.heard.clear()


async def test_push_is_retried_when_busy_and_given_up_when_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:

    monkeypatch.setattr("remit.server.a2a.push.FIRST_PAUSE_SECONDS", 0.02)
    tries: list[str] = []

    async def busy(heard: Heard, writer: asyncio.StreamWriter) -> None:
        tries.append(heard.path)
        status = 410 if heard.path == "/gone" else 302 if heard.path == "/elsewhere" else 503 if tries.count("/busy") < 4 else 200
        await respond(writer, status, b"", "text/plain", f"Location: http://{heard.headers['host']}/never")

    async with hostile(busy) as web, a2a_stage(tmp_path, AGENTS, **INSIDE) as stage:
        client = await stage.client(streaming=False)
        for path in ("/busy", "/gone", "/elsewhere"):
            await sent(client, said(skill="quick", data={}), task_push_notification_config=config(web.url + path))
        await web.until(8)
        await asyncio.sleep(0.1)
        assert (tries.count("/busy"), tries.count("/gone"), tries.count("/elsewhere"), tries.count("/never")) == (6, 1, 1, 0)


async def test_undelivered_notifications_are_sent_after_a_restart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from a2a.types import ListTaskPushNotificationConfigsRequest

    monkeypatch.setattr("remit.server.a2a.push.FIRST_PAUSE_SECONDS", 30.0)
    port = 0

    async def shut(_heard: Heard, writer: asyncio.StreamWriter) -> None:
        await respond(writer, 503)

    async with hostile(shut) as web, a2a_stage(tmp_path, AGENTS, **INSIDE) as stage:
        port = int(web.url.rpartition(":")[2])
        client = await stage.client(streaming=False)
        token = stage.token()
        task = (await sent(client, said(skill="quick", data={}), task_push_notification_config=config(web.url, id="mine")))[-1].task
        await web.until(1)
    async with hostile(take, port) as web, a2a_stage(tmp_path, AGENTS, **INSIDE) as stage:
        await web.until(3)
        assert states(web.heard) == ["WORKING", "COMPLETED"]
        client = await stage.client(token=token)
        listed = await client.list_task_push_notification_configs(ListTaskPushNotificationConfigsRequest(task_id=task.id))
        assert [one.id for one in listed.configs] == ["mine"]
    kept = next((tmp_path / ".remit" / "a2a").glob("*.json"))
    assert kept.stat().st_mode & 0o077 == 0


async def test_one_that_watches_a_task_hears_that_it_asks_and_how_it_went_on(tmp_path: Path) -> None:
    async with hostile(take) as web, a2a_stage(tmp_path, AGENTS, **INSIDE) as stage:
        client = await stage.client(streaming=False)
        asked = (await sent(client, said("paint", skill="asks"), task_push_notification_config=config(web.url)))[-1].task
        await web.until(2)
        assert states(web.heard) == ["WORKING", "INPUT_REQUIRED"]
        done = (await sent(client, said("blue", task_id=asked.id)))[-1].task
        assert state_name(done) == "COMPLETED"
        await web.until(5)
        assert states(web.heard) == ["WORKING", "INPUT_REQUIRED", "WORKING", "COMPLETED"]
        assert {one.json["statusUpdate"]["taskId"] for one in web.heard if "statusUpdate" in one.json} == {asked.id}


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1:9999/", "http://localhost/", "http://[::1]/", "http://10.1.2.3/", "http://169.254.169.254/latest/", "ftp://example.com/",
        "http://2130706433/", "http://[::ffff:127.0.0.1]/", "http://0.0.0.0/", "http://user:pw@example.com/", "http://metadata.google.internal/",
        "http://198.51.100.1:25/", "http:///x", "nonsense", "http://[64:ff9b::7f00:1]/",
    ],
)  # fmt: skip
async def test_addresses_inside_are_refused_and_nothing_is_begun(url: str) -> None:
    """SSRF: a stranger must not have us call what lies inside."""
    from remit.core.errors import Misused
    from remit.server.a2a.push import Post

    with pytest.raises(Misused):
        await Post(inside=False).must_be_allowed(url)


async def test_a_name_is_judged_by_every_address_it_has_each_time_anew() -> None:
    import ipaddress

    from remit.core.errors import Misused
    from remit.server.a2a.push import Outcome, Post
    from remit.server.a2a.threads import Watcher

    answers = [["93.184.215.14"], ["93.184.215.14", "10.0.0.1"], ["127.0.0.1"], ["169.254.169.254"]]

    async def rebinding(_host: str, _port: int) -> Any:
        return [ipaddress.ip_address(text) for text in answers.pop(0)]

    post = Post(inside=False, resolver=rebinding)
    await post.must_be_allowed("http://rebinding.example/")
    with pytest.raises(Misused):
        await post.must_be_allowed("http://rebinding.example/")
    watcher = Watcher(config_id="w", url="http://rebinding.example/")
    assert await post(watcher, b"{}") is Outcome.REFUSED
    assert await Post(inside=True, resolver=rebinding)(watcher, b"{}") is Outcome.REFUSED


async def test_a_config_that_is_refused_begins_no_task(tmp_path: Path) -> None:
    from a2a.utils.errors import InvalidParamsError

    async with a2a_stage(tmp_path, AGENTS) as stage:
        client = await stage.client(streaming=False)
        for wrong in (config("http://127.0.0.1:1/"), config("http://93.184.215.14/", token="a\nb"), config("")):
            with pytest.raises(InvalidParamsError):
                await sent(client, said(skill="quick", data={}), task_push_notification_config=wrong)
        assert not await stage.remit.history()
