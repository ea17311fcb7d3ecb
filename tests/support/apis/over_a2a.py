"""The A2A API through the a2a-sdk's client, over both bindings, configured by the served agent card."""

import contextlib
import uuid
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

import httpx
from a2a.client import Client, ClientCallContext, ClientConfig, ClientFactory
from a2a.client.card_resolver import A2ACardResolver
from a2a.client.interceptors import ClientCallInterceptor
from a2a.types import (
    CancelTaskRequest,
    GetExtendedAgentCardRequest,
    GetTaskRequest,
    ListTasksRequest,
    Message,
    Part,
    Role,
    SendMessageConfiguration,
    SendMessageRequest,
    SubscribeToTaskRequest,
    Task,
    TaskState,
)
from a2a.utils.errors import A2AError, UnsupportedOperationError

from support.apis.client import ApiFault, Page, Said, Seen, Standing
from support.apis.traits import A2A
from support.protobuf import dict_of, json_of, struct_of, value_of

EXTENSION = "https://remit.dev/extensions/delegation/v1"


class A2aClient:
    traits = A2A

    def __init__(self, plain: Client, streaming: Client, standing: Standing | None) -> None:
        self._plain = plain
        self._streaming = streaming
        self._standing = standing

    async def execute(self, arguments: Mapping[str, Any]) -> str:
        """The message id is the idempotency key; the context id is the conversation."""
        given = dict(arguments)
        key, session = given.pop("key", None), given.pop("session", None)
        message = Message(
            message_id=key or uuid.uuid4().hex, context_id=session or "", role=Role.ROLE_USER, parts=[Part(data=value_of(given))]
        )
        if self._standing is not None:
            standing: dict[str, Any] = {"depth": self._standing.depth, "path": list(self._standing.path)}
            if self._standing.seconds_left is not None:
                standing["timeLeftMs"] = round(1000 * self._standing.seconds_left)
            message.metadata.CopyFrom(struct_of({EXTENSION: standing}))
        request = SendMessageRequest(message=message, configuration=SendMessageConfiguration(return_immediately=True))
        with _faults_translated():
            async for event in self._plain.send_message(request):
                return event.task.id
        raise AssertionError("nothing came back")

    async def status(self, task_id: str) -> Seen:
        with _faults_translated():
            return _seen(await self._plain.get_task(GetTaskRequest(id=task_id)))

    async def stream(self, task_id: str, after: int = 0) -> AsyncIterator[Said]:
        """Begins with the task's current state and its chunks so far; after the final state the task is fetched."""
        with _faults_translated(), contextlib.suppress(UnsupportedOperationError):  # the task has ended: there is no stream to subscribe to
            async for event in self._streaming.subscribe(SubscribeToTaskRequest(id=task_id)):
                for said in _said(event):
                    yield said
        seen = await self.status(task_id)
        yield Said(kind="end", seen=seen)

    async def cancel(self, task_id: str, reason: str = "") -> Seen:
        with _faults_translated():
            return _seen(await self._plain.cancel_task(CancelTaskRequest(id=task_id)))

    async def list(
        self, *, session: str | None = None, shown: str | None = None, agent: str | None = None, size: int = 50, page: str | None = None
    ) -> Page:
        status = "TASK_STATE_UNSPECIFIED" if shown is None else f"TASK_STATE_{shown}"
        request = ListTasksRequest(context_id=session or "", status=status, page_size=size, page_token=page or "")
        with _faults_translated():
            answer = await self._plain.list_tasks(request)
        return Page([task.id for task in answer.tasks], answer.next_page_token or None)

    async def agents(self) -> Sequence[str]:
        with _faults_translated():
            card = await self._plain.get_extended_agent_card(GetExtendedAgentCardRequest())
        return [skill.id for skill in card.skills]


async def a2a_client(closing: contextlib.AsyncExitStack, url: str, token: str, binding: str, standing: Standing | None = None) -> A2aClient:
    """`url`: base URL of the server that serves the agent card."""
    plain, streaming = [
        await sdk_client(closing, url, token, binding, streaming=one, is_remit=standing is not None) for one in (False, True)
    ]
    return A2aClient(plain, streaming, standing)


async def sdk_client(
    closing: contextlib.AsyncExitStack, url: str, token: str, binding: str, *, streaming: bool, is_remit: bool = False
) -> Client:
    headers = {"Authorization": f"Bearer {token}"}
    http = await closing.enter_async_context(httpx.AsyncClient(headers=headers, timeout=30, verify=url.startswith("https:")))
    card = await A2ACardResolver(http, url).get_agent_card()
    config = ClientConfig(streaming=streaming, httpx_client=http, supported_protocol_bindings=[binding])
    client = ClientFactory(config).create(card, [_Along(token, is_remit)])
    closing.push_async_callback(client.close)
    return client


class _Along(ClientCallInterceptor):
    """Metadata for every call: the token and the supported extensions."""

    def __init__(self, token: str, is_remit: bool) -> None:
        self._sent = {"authorization": f"Bearer {token}"} | ({"A2A-Extensions": EXTENSION} if is_remit else {})

    async def before(self, args: Any) -> None:
        args.context = args.context or ClientCallContext()
        args.context.service_parameters = {**(args.context.service_parameters or {}), **self._sent}

    async def after(self, args: Any) -> None:
        pass


def _seen(task: Task) -> Seen:
    metadata = dict_of(task.metadata)
    errors = metadata.get(EXTENSION, {}).get("errors") or []
    result = next((artifact.parts[0] for artifact in task.artifacts if artifact.artifact_id == "result"), None)
    return Seen(
        task_id=task.id,
        shown=TaskState.Name(task.status.state).removeprefix("TASK_STATE_"),
        status=metadata.get("status"),
        stop_reason=metadata.get("stopReason"),
        data=None if result is None else _content(result),
        summary=metadata.get(EXTENSION, {}).get("summary", ""),
        code=errors[0]["code"] if errors else None,
        artifacts=tuple(artifact.name for artifact in task.artifacts if artifact.artifact_id.startswith("file-")),
    )


def _content(part: Part) -> Any:
    return part.text if part.WhichOneof("content") == "text" else json_of(part.data)


def _said(event: Any) -> list[Said]:
    kind = event.WhichOneof("payload")
    if kind == "task":
        streamed = [artifact for artifact in event.task.artifacts if artifact.artifact_id == "stream"]
        data = [Said(kind="data", value=_content(part)) for artifact in streamed for part in artifact.parts]
        words = [part.text for part in event.task.status.message.parts]
        state = Said(kind="status", value=TaskState.Name(event.task.status.state))
        return [state, *[Said(kind="progress", value=text) for text in words], *data]
    update = getattr(event, kind)
    number = dict_of(update.metadata).get(EXTENSION, {}).get("number")
    if kind == "artifact_update":
        if update.artifact.artifact_id != "stream":
            return []
        return [Said(kind="data", number=number, value=_content(part)) for part in update.artifact.parts]
    return [Said(kind="progress", number=number, value=part.text) for part in update.status.message.parts] if number else []


@contextlib.contextmanager
def _faults_translated() -> Any:
    try:
        yield
    except UnsupportedOperationError:
        raise
    except A2AError as error:
        raise ApiFault(_code(error), type(error).__name__, error.message) from error


def _code(error: A2AError) -> str | None:
    return str(error.data["code"]) if isinstance(error.data, Mapping) and "code" in error.data else None
