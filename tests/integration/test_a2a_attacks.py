"""The A2A API under callers that mean harm, or are in each other's way."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from a2a_stage import BINDINGS, EVERYBODY, a2a_stage, said, sent, state_name

from remit import Context, agent
from remit.server.tokens import Permission

RUNS: list[str] = []


@agent("slow")
async def slow(ctx: Context) -> None:
    await asyncio.sleep(60)


@agent("quick")
async def quick() -> str:
    return "done"


@agent("asks")
async def asks(ctx: Context, task: str) -> Any:
    if task == "paint":
        return {"status": "blocked", "summary": "Which colour?", "errors": [{"type": "input", "message": "Which colour is it to be?"}]}
    RUNS.append(task)
    return await asyncio.sleep(60)


async def one_task(client: Any, message: Any, **configuration: Any) -> Any:
    return (await sent(client, message, **configuration))[-1].task


async def test_see_all_does_not_cover_push_configs_of_others(tmp_path: Path) -> None:
    """A config of push notifications holds the secrets of its receiver."""
    from a2a.types import DeleteTaskPushNotificationConfigRequest as Delete
    from a2a.types import GetTaskPushNotificationConfigRequest as Get
    from a2a.types import GetTaskRequest, SubscribeToTaskRequest, TaskPushNotificationConfig
    from a2a.types import ListTaskPushNotificationConfigsRequest as List
    from a2a.utils.errors import A2AError

    async with a2a_stage(tmp_path, [slow], serve={"push_inside": True}) as stage:
        owner = await stage.client(streaming=False)
        task = await one_task(owner, said(skill="slow", data={}), return_immediately=True)
        wanted = TaskPushNotificationConfig(id="c", task_id=task.id, url="http://127.0.0.1:8009/", token="mine-alone")
        await owner.create_task_push_notification_config(wanted)
        for binding in BINDINGS:
            watching = await stage.client(binding, stage.token("watching", EVERYBODY | {Permission.SEE_ALL}))
            stranger = await stage.client(binding, stage.token("stranger"))
            assert (await watching.get_task(GetTaskRequest(id=task.id))).id == task.id
            for client in (watching, stranger):
                for asked in (
                    client.get_task_push_notification_config(Get(task_id=task.id, id="c")),
                    client.list_task_push_notification_configs(List(task_id=task.id)),
                    client.delete_task_push_notification_config(Delete(task_id=task.id, id="c")),
                    client.create_task_push_notification_config(TaskPushNotificationConfig(task_id=task.id, url="http://127.0.0.1:8009/x")),
                    one_task(client, said("go on", task_id=task.id)),
                ):
                    with pytest.raises(A2AError) as refused:
                        await asked
                    assert "mine-alone" not in str(refused.value)
            with pytest.raises(A2AError):
                await anext(stranger.subscribe(SubscribeToTaskRequest(id=task.id)))
        assert [one.id for one in (await owner.list_task_push_notification_configs(List(task_id=task.id))).configs] == ["c"]


async def test_of_answers_that_come_at_once_one_is_taken_and_cancelling_reaches_it(tmp_path: Path) -> None:
    """Else two delegations went on with one task, and only one of them could ever be cancelled."""
    from a2a.types import CancelTaskRequest
    from a2a.utils.errors import A2AError

    RUNS.clear()
    async with a2a_stage(tmp_path, [asks]) as stage:
        clients = [await stage.client(binding, streaming=False) for binding in BINDINGS]
        asked = await one_task(clients[0], said("paint", skill="asks"))
        colours = [f"colour {number}" for number in range(6)]
        answers = [said(colour, task_id=asked.id) for colour in colours]
        given = [one_task(clients[number % 3], answer, return_immediately=True) for number, answer in enumerate(answers)]
        tasks = await asyncio.gather(*given, return_exceptions=True)
        refused = [one for one in tasks if isinstance(one, A2AError)]
        assert (len(refused), len(stage.remit.engine.live())) == (5, 1), tasks
        assert state_name(await clients[0].cancel_task(CancelTaskRequest(id=asked.id))) == "CANCELED"
        assert not stage.remit.engine.live()
        assert len(RUNS) == 1


async def test_what_was_cancelled_while_it_waited_does_not_go_on_and_is_listed_as_cancelled(tmp_path: Path) -> None:
    from a2a.types import CancelTaskRequest, ListTasksRequest, TaskState
    from a2a.utils.errors import A2AError

    async with a2a_stage(tmp_path, [asks]) as stage:
        client = await stage.client(streaming=False)
        asked = await one_task(client, said("paint", skill="asks"))
        waits = await one_task(client, said("paint", skill="asks"))
        await client.cancel_task(CancelTaskRequest(id=asked.id))
        with pytest.raises(A2AError):
            await one_task(client, said("blue", task_id=asked.id))
        for state, task in (("CANCELED", asked), ("INPUT_REQUIRED", waits)):
            listed = await client.list_tasks(ListTasksRequest(status=TaskState.Value(f"TASK_STATE_{state}")))
            assert [one.id for one in listed.tasks] == [task.id]


async def test_slow_receivers_delay_only_their_own_notifications(tmp_path: Path) -> None:
    from a2a.types import TaskPushNotificationConfig

    told = asyncio.Event()

    async def hear(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        told.set()
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
        writer.close()

    async def never(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        try:
            await asyncio.sleep(60)
        finally:
            writer.close()

    servers = [await asyncio.start_server(one, "127.0.0.1", 0) for one in (hear, never)]
    good, slow_one = (f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/" for server in servers)
    async with a2a_stage(tmp_path, [quick], serve={"push_inside": True}) as stage:
        hostile = await stage.client(token=stage.token("hostile"), streaming=False)
        for _ in range(4):  # ten each: more than all that are sent at once
            task = await one_task(hostile, said(skill="quick", data={}))
            await asyncio.gather(
                *(
                    hostile.create_task_push_notification_config(TaskPushNotificationConfig(task_id=task.id, url=f"{slow_one}{number}"))
                    for number in range(10)
                )
            )
        client = await stage.client(streaming=False)
        wanted = TaskPushNotificationConfig(url=good)
        await one_task(client, said(skill="quick", data={}), task_push_notification_config=wanted)
        async with asyncio.timeout(60):
            await told.wait()
    for server in servers:
        server.close()
