"""Push notifications: who wants to know when the state of a task changes, and their delivery: in order, with retries.

The note of a task has its watchers and how far each was told, so a restarted server continues. Delivery is at least once. Addresses inside
the network are refused unless the settings allow them: the name is resolved once per try, checked, and connected to exactly that address.
Redirects are not followed, and nothing but the status of the answer is read."""

import asyncio
import contextlib
import hashlib
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from dataclasses import replace
from enum import Enum
from pathlib import Path
from weakref import WeakValueDictionary

from a2a.types import AuthenticationInfo, SendMessageConfiguration, TaskPushNotificationConfig
from a2a.utils.errors import InvalidParamsError, TaskNotFoundError
from a2a.utils.proto_utils import Event, to_stream_response
from google.protobuf.json_format import MessageToJson

from remit.core.errors import Misused, RemitError
from remit.core.events import EventKind, Step
from remit.core.lineage import ROOT_CALLER
from remit.core.record import Record
from remit.core.states import State
from remit.serve.a2a.tasks import last_updates, state_update, task_id_of, task_of
from remit.serve.a2a.threads import Note, Thread, Threads, Watcher, with_watcher, without_watcher
from remit.serve.service import Service
from remit.system.guarded_http import (
    METADATA_NAMES,
    Address,
    AddressKind,
    OutgoingRequest,
    Resolve,
    Target,
    Unreached,
    classify_address,
    parse_target,
    resolve,
    send_request,
    tls_context,
)
from remit.system.threads import off_loop

ANSWER_SECONDS = 10.0
TOKEN_HEADER = "X-A2A-Notification-Token"
_TRY_AGAIN = frozenset({408, 425, 429})


class Outcome(Enum):
    TAKEN = "taken"
    FAILED = "failed"
    """It may do at another try."""
    REFUSED = "refused"
    """It will not do."""


class Post:
    def __init__(self, *, inside: bool, ca_file: Path | None = None, resolver: Resolve = resolve) -> None:
        self._inside = inside
        self._ca_file = ca_file
        self._resolve = resolver

    async def must_be_allowed(self, url: str) -> None:
        """Raises `Misused`, in the same words whatever is there: nobody is to learn about our network this way."""
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                await self._checked(url)
        except (TimeoutError, Unreached):
            raise _not_allowed() from None

    async def __call__(self, watcher: Watcher, body: bytes) -> Outcome:
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                target, addresses = await self._checked(watcher.url)
                tls = tls_context(self._ca_file) if target.scheme == "https" else None
                request = OutgoingRequest(target=target, method="POST", headers=_headers(watcher), body=body)
                async with send_request(request, addresses, tls) as answer:
                    return _outcome(answer.status)
        except Misused:
            return Outcome.REFUSED
        except (TimeoutError, Unreached):
            return Outcome.FAILED

    async def _checked(self, url: str) -> tuple[Target, Sequence[Address]]:
        target = parse_target(url)
        if target.host in METADATA_NAMES:
            raise _not_allowed()
        addresses = [target.address] if target.address is not None else await self._resolve(target.host, target.port)
        if not addresses or not all(self._may_go_to(address) for address in addresses):
            raise _not_allowed()
        return target, addresses

    def _may_go_to(self, address: Address) -> bool:
        reach = classify_address(address)
        return reach is AddressKind.PUBLIC or (self._inside and reach in (AddressKind.LOOPBACK, AddressKind.PRIVATE))


def _outcome(status: int) -> Outcome:
    if 200 <= status < 300:
        return Outcome.TAKEN
    return Outcome.FAILED if status >= 500 or status in _TRY_AGAIN else Outcome.REFUSED


def _headers(watcher: Watcher) -> list[tuple[str, str]]:
    headers = [("Content-Type", "application/json"), ("User-Agent", "remit")]
    if watcher.token:
        headers.append((TOKEN_HEADER, watcher.token))
    if watcher.scheme and watcher.credentials:
        headers.append(("Authorization", f"{watcher.scheme} {watcher.credentials}"))
    return headers


def _not_allowed() -> Misused:
    return Misused(
        "Notifications cannot be sent to that address.",
        advice="Name one that is reached from everywhere; addresses inside are open where [serve] push_inside = true.",
    )


log = logging.getLogger("remit.serve.a2a")
MOST_WATCHERS = 10
"""Of one task."""
TRIES = 7
FIRST_PAUSE_SECONDS = 1.0
"""Doubled after each try: the last one is made after about a minute."""
KEPT_SECONDS = 7 * 86_400.0
AT_ONCE, THEIRS_AT_ONCE = 32, 6
"""Of all, and of one principal's: receivers that take their time hold up nobody else's."""
_LONGEST = 4096
Sleep = Callable[[float], Awaitable[None]]


class Pushing:
    def __init__(self, service: Service, threads: Threads, post: Post, *, pause: Sleep = asyncio.sleep) -> None:
        self._service = service
        self._threads = threads
        self._post = post
        self._pause = pause
        self._senders: dict[tuple[str, str], asyncio.Task[None]] = {}
        self._again: set[tuple[str, str]] = set()
        """Senders that were woken while they were still at it."""
        self._room = asyncio.Semaphore(AT_ONCE)
        self._theirs: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()

    async def start(self) -> None:
        """Go on with what the server before had not told yet."""
        for task_id in await off_loop(self._unfinished):
            self.wake(task_id)

    def _unfinished(self) -> list[str]:
        notes, store = self._threads.notes, self._service.remit.store
        notes.prune(older_than_seconds=KEPT_SECONDS, is_known=lambda task_id: store.get(task_id) is not None)
        return [task_id for task_id in notes.all() if any(not watcher.is_done for watcher in notes.of(task_id).watchers)]

    async def close(self) -> None:
        senders = list(self._senders.values())
        for sender in senders:
            sender.cancel()
        if senders:
            await asyncio.wait(senders, timeout=2.0)

    # ---- who wants to be told

    async def wanted(self, configuration: SendMessageConfiguration) -> Watcher | None:
        """Of a message that brings a watcher along: judged before anything is begun. Raises `Misused`."""
        if not configuration.HasField("task_push_notification_config"):
            return None
        watcher = _watcher(configuration.task_push_notification_config)
        await self._post.must_be_allowed(watcher.url)
        return watcher

    async def begun(self, record: Record, watcher: Watcher | None) -> None:
        """A delegation was begun, or gone on with: those who watch its task are told of it from now on."""
        task_id = task_id_of(record)
        if watcher is not None:
            await self._keep(task_id, watcher)
        self.wake(task_id)

    async def create(self, thread: Thread, config: TaskPushNotificationConfig) -> TaskPushNotificationConfig:
        watcher = _watcher(config)
        await self._post.must_be_allowed(watcher.url)
        await self._keep(thread.task_id, watcher)
        self.wake(thread.task_id)
        return _config(thread.task_id, watcher)

    async def _keep(self, task_id: str, watcher: Watcher) -> None:
        def kept(note: Note) -> Note:
            known = next((one for one in note.watchers if one.config_id == watcher.config_id), None)
            if known is None:
                after = with_watcher(note, watcher)
            else:  # it goes on where it is; one that was changed may be there again
                fresh = replace(watcher, session=known.session, told=known.told)
                after = with_watcher(note, fresh) if replace(fresh, is_done=known.is_done) != known else note
            if len(after.watchers) > MOST_WATCHERS:
                raise InvalidParamsError(f"A task has at most {MOST_WATCHERS} push notification configs; delete one first.")
            return after

        await off_loop(self._threads.notes.change, task_id, kept)

    def get(self, thread: Thread, config_id: str) -> TaskPushNotificationConfig:
        for watcher in thread.note.watchers:
            if watcher.config_id == config_id:
                return _config(thread.task_id, watcher)
        raise TaskNotFoundError(f"Task {thread.task_id} has no push notification config {config_id[:80]}.")

    def all(self, thread: Thread) -> list[TaskPushNotificationConfig]:
        return [_config(thread.task_id, watcher) for watcher in thread.note.watchers]

    async def delete(self, thread: Thread, config_id: str) -> None:
        """Of one that is not there: nothing, so that a second try is as good as the first."""
        if (sender := self._senders.pop((thread.task_id, config_id), None)) is not None:
            sender.cancel()
        await off_loop(self._threads.notes.change, thread.task_id, lambda note: without_watcher(note, config_id))

    # ---- telling them

    def wake(self, task_id: str) -> None:
        """Something is, or may be, to be told of that task."""
        key = (task_id, "")
        if key not in self._senders:
            self._senders[key] = asyncio.create_task(self._begin(task_id))

    async def _begin(self, task_id: str) -> None:
        try:
            note = await off_loop(self._threads.notes.of, task_id)
        finally:
            self._senders.pop((task_id, ""), None)
        for watcher in note.watchers:
            key = (task_id, watcher.config_id)
            if key in self._senders:
                self._again.add(key)
            elif not watcher.is_done:
                self._senders[key] = asyncio.create_task(self._tell(task_id, watcher.config_id))

    async def _tell(self, task_id: str, config_id: str) -> None:
        key = (task_id, config_id)
        try:
            while True:
                self._again.discard(key)
                await self._tell_all(task_id, config_id)
                if key not in self._again:
                    return
        except RemitError as error:
            log.warning("Notifications of %s end: %s", task_id, error)
        finally:
            if self._senders.get(key) is asyncio.current_task():
                del self._senders[key]

    async def _tell_all(self, task_id: str, config_id: str) -> None:
        """Until the task has ended, or waits for its caller."""
        record = await off_loop(self._service.remit.store.get, task_id)
        if record is None:
            return
        thread = await off_loop(self._threads.whole, record)
        principal = record.came.principal if record.came is not None else ROOT_CALLER
        async with contextlib.aclosing(self._changes(thread, config_id)) as changes:
            async for number, updates, is_end in changes:
                watcher = await self._watcher(task_id, config_id)
                if watcher is None or watcher.is_done:
                    return
                for update in updates:
                    if not await self._deliver(principal, watcher, update):
                        log.warning("Nobody took a notification of %s: it is given up.", task_id)
                        is_end = True  # what comes later would be told out of its order, to one who is not there
                        break
                await self._note(task_id, replace(watcher, session=thread.record.session_id, told=number, is_done=is_end))
                if is_end:
                    return

    async def _changes(self, thread: Thread, config_id: str) -> AsyncGenerator[tuple[int, Sequence[Event], bool], None]:
        """The changes of its state that were not told yet: a number, what to tell, and whether it was the last."""
        record, watcher = thread.record, next((one for one in thread.note.watchers if one.config_id == config_id), None)
        after = watcher.told if watcher is not None and watcher.session == record.session_id else 0
        if thread.is_cancelled:
            yield after + 1, await off_loop(self._ended, thread), True
            return
        async with contextlib.aclosing(self._service.remit.follow(record.session_id, after)) as events:
            async for event in events:
                if event.kind is EventKind.STEP and event.body.get("step") == Step.ROUTE_TO_AGENT:
                    yield event.number, [state_update(record, State.RUNNING, event.at)], False
                elif event.kind in (EventKind.COMPLETE, EventKind.ERROR):
                    ended = await self._service.remit.describe(record.session_id)
                    thread = replace(thread, records=(*thread.records[:-1], ended))
                    yield event.number, await off_loop(self._ended, thread), not thread.waits
                    return

    def _ended(self, thread: Thread) -> Sequence[Event]:
        return last_updates(task_of(thread.record, self._service.remit.root, is_cancelled=thread.is_cancelled))

    async def _deliver(self, principal: str, watcher: Watcher, update: Event) -> bool:
        body = MessageToJson(to_stream_response(update), indent=None).encode()
        pause, theirs = FIRST_PAUSE_SECONDS, self._theirs.setdefault(principal, asyncio.Semaphore(THEIRS_AT_ONCE))
        for attempt in range(TRIES):
            if attempt:
                await self._pause(pause)
                pause *= 2
            async with theirs, self._room:
                outcome = await self._post(watcher, body)
            if outcome is not Outcome.FAILED:
                return outcome is Outcome.TAKEN
        return False

    async def _watcher(self, task_id: str, config_id: str) -> Watcher | None:
        note = await off_loop(self._threads.notes.of, task_id)
        return next((watcher for watcher in note.watchers if watcher.config_id == config_id), None)

    async def _note(self, task_id: str, watcher: Watcher) -> None:
        """Unless it was deleted meanwhile."""
        known = watcher.config_id
        await off_loop(
            self._threads.notes.change,
            task_id,
            lambda note: with_watcher(note, watcher) if any(one.config_id == known for one in note.watchers) else note,
        )


def _watcher(config: TaskPushNotificationConfig) -> Watcher:
    given = (config.id, config.url, config.token, config.authentication.scheme, config.authentication.credentials)
    if not config.url:
        raise InvalidParamsError("A push notification config needs a url.")
    if any(len(text) > _LONGEST or not text.isprintable() for text in given):
        raise InvalidParamsError(f"What a push notification config says is at most {_LONGEST} printable characters.")
    if not (config.token + config.authentication.scheme + config.authentication.credentials).isascii():
        raise InvalidParamsError("Token and credentials are sent as headers: ASCII alone.")
    # The same for the same wish, so that a message sent again does not have it told twice.
    config_id = config.id or f"push_{hashlib.sha256(chr(0).join(given).encode()).hexdigest()[:12]}"
    authentication = config.authentication
    return Watcher(
        config_id=config_id, url=config.url, token=config.token, scheme=authentication.scheme, credentials=authentication.credentials
    )


def _config(task_id: str, watcher: Watcher) -> TaskPushNotificationConfig:
    config = TaskPushNotificationConfig(id=watcher.config_id, task_id=task_id, url=watcher.url, token=watcher.token)
    if watcher.scheme:
        config.authentication.CopyFrom(AuthenticationInfo(scheme=watcher.scheme, credentials=watcher.credentials))
    return config
