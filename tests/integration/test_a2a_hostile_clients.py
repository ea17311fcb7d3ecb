"""The A2A API under hostile and concurrent clients."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from a2a_harness import BINDINGS, DELEGATE_ONLY, a2a_harness, message, send, state_name

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
    return (await send(client, message, **configuration))[-1].task


async def test_see_all_does_not_cover_continuing_tasks_of_others(tmp_path: Path) -> None:
    from a2a.types import GetTaskRequest, SubscribeToTaskRequest
    from a2a.utils.errors import A2AError

    async with a2a_harness(tmp_path, [slow]) as harness:
        owner = await harness.client(streaming=False)
        task = await one_task(owner, message(skill="slow", data={}), return_immediately=True)
        for binding in BINDINGS:
            watching = await harness.client(binding, harness.token("watching", DELEGATE_ONLY | {Permission.SEE_ALL}))
            stranger = await harness.client(binding, harness.token("stranger"))
            assert (await watching.get_task(GetTaskRequest(id=task.id))).id == task.id
            for client in (watching, stranger):
                with pytest.raises(A2AError):
                    await one_task(client, message("go on", task_id=task.id))
            with pytest.raises(A2AError):
                await anext(stranger.subscribe(SubscribeToTaskRequest(id=task.id)))


async def test_push_notifications_are_refused_as_not_supported(tmp_path: Path) -> None:
    from a2a.types import TaskPushNotificationConfig
    from a2a.utils.errors import PushNotificationNotSupportedError

    config = TaskPushNotificationConfig(task_id="sess_1700000000_abcdef", url="http://127.0.0.1:9/")
    async with a2a_harness(tmp_path, [quick]) as harness:
        for binding in BINDINGS:
            client = await harness.client(binding, streaming=False)
            with pytest.raises(PushNotificationNotSupportedError):
                await client.create_task_push_notification_config(config)
            with pytest.raises(PushNotificationNotSupportedError):
                await one_task(client, message(skill="quick", data={}), task_push_notification_config=config)
        assert not await harness.remit.history()


async def test_one_of_concurrent_answers_is_accepted_and_can_be_cancelled(tmp_path: Path) -> None:
    """Otherwise two delegations would continue one task, and only one of them could be cancelled."""
    from a2a.types import CancelTaskRequest
    from a2a.utils.errors import A2AError

    RUNS.clear()
    async with a2a_harness(tmp_path, [asks]) as harness:
        clients = [await harness.client(binding, streaming=False) for binding in BINDINGS]
        waiting_task = await one_task(clients[0], message("paint", skill="asks"))
        colours = [f"colour {number}" for number in range(6)]
        answers = [message(colour, task_id=waiting_task.id) for colour in colours]
        calls = [one_task(clients[number % 3], answer, return_immediately=True) for number, answer in enumerate(answers)]
        tasks = await asyncio.gather(*calls, return_exceptions=True)
        refused = [one for one in tasks if isinstance(one, A2AError)]
        assert (len(refused), len(harness.remit.engine.live())) == (5, 1), tasks
        assert state_name(await clients[0].cancel_task(CancelTaskRequest(id=waiting_task.id))) == "CANCELED"
        assert not harness.remit.engine.live()
        assert len(RUNS) == 1


async def test_task_cancelled_while_waiting_for_input_cannot_be_continued(tmp_path: Path) -> None:
    from a2a.types import CancelTaskRequest, ListTasksRequest, TaskState
    from a2a.utils.errors import A2AError

    async with a2a_harness(tmp_path, [asks]) as harness:
        client = await harness.client(streaming=False)
        waiting_task = await one_task(client, message("paint", skill="asks"))
        waits = await one_task(client, message("paint", skill="asks"))
        await client.cancel_task(CancelTaskRequest(id=waiting_task.id))
        with pytest.raises(A2AError):
            await one_task(client, message("blue", task_id=waiting_task.id))
        for state, task in (("CANCELED", waiting_task), ("INPUT_REQUIRED", waits)):
            listed = await client.list_tasks(ListTasksRequest(status=TaskState.Value(f"TASK_STATE_{state}")))
            assert [one.id for one in listed.tasks] == [task.id]
