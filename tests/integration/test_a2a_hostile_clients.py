"""The A2A API: answers of other callers, and clients whose token is revoked."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from a2a_harness import BINDINGS, a2a_harness, message, send, state_name
from grpc_harness import DELEGATE_ONLY

from remit import Context, agent
from support.server import Permission


@agent("asks")
async def asks(ctx: Context, task: str) -> Any:
    if task == "paint":
        return {"status": "blocked", "summary": "Which colour?", "errors": [{"type": "input", "message": "Which colour is it to be?"}]}
    return await asyncio.sleep(60)


async def one_task(client: Any, message: Any, **configuration: Any) -> Any:
    return (await send(client, message, **configuration))[-1].task


async def test_one_of_concurrent_answers_is_accepted_and_can_be_cancelled(tmp_path: Path) -> None:
    """Otherwise two delegations would continue one task, and only one of them could be cancelled."""
    from a2a.types import CancelTaskRequest
    from a2a.utils.errors import A2AError

    async with a2a_harness(tmp_path, [asks]) as harness:
        clients = [await harness.client(binding, streaming=False) for binding in BINDINGS]
        waiting_task = await one_task(clients[0], message("paint", skill="asks"))
        colours = [f"colour {number}" for number in range(6)]
        answers = [message(colour, task_id=waiting_task.id) for colour in colours]
        calls = [one_task(clients[number % 2], answer, return_immediately=True) for number, answer in enumerate(answers)]
        tasks = await asyncio.gather(*calls, return_exceptions=True)
        refused = [one for one in tasks if isinstance(one, A2AError)]
        assert (len(refused), len(harness.remit.engine.live())) == (5, 1), tasks
        assert state_name(await clients[0].cancel_task(CancelTaskRequest(id=waiting_task.id))) == "CANCELED"
        assert not harness.remit.engine.live()


async def test_task_that_waits_for_input_is_answered_by_its_own_caller_only(tmp_path: Path) -> None:
    from a2a.types import GetTaskRequest
    from a2a.utils.errors import A2AError

    async with a2a_harness(tmp_path, [asks]) as harness:
        own = await harness.client(token=harness.token("own"), streaming=False)
        sees_all = await harness.client(token=harness.token("sees", DELEGATE_ONLY | {Permission.SEE_ALL}), streaming=False)
        task = await one_task(own, message("paint", skill="asks"))
        assert state_name(await sees_all.get_task(GetTaskRequest(id=task.id))) == "INPUT_REQUIRED"
        with pytest.raises(A2AError, match="is not token:sees's"):
            await one_task(sees_all, message("red", task_id=task.id))


@pytest.mark.parametrize("binding", BINDINGS)
async def test_message_that_waits_ends_with_its_token(tmp_path: Path, binding: str) -> None:
    async with a2a_harness(tmp_path, [asks]) as harness:
        client = await harness.client(binding, harness.token("waits"), streaming=False)
        waiting = asyncio.ensure_future(one_task(client, message("slowly", skill="asks")))
        while not harness.remit.engine.live():  # noqa: ASYNC110 - there is no event to wait for
            await asyncio.sleep(0.01)
        harness.authenticator.tokens.revoke("waits")
        async with asyncio.timeout(20):
            with pytest.raises(Exception, match=r"401|not authenticated|no longer valid"):
                await waiting
        assert len(harness.remit.engine.live()) == 1, "leaving ends no task"
