"""Push notifications: who wants to know when the state of a task changes, and their delivery: in order, with retries, at least once.

The note of a task has its watchers and the last event each was sent, so a restarted server continues. Addresses inside the network are
refused unless the settings allow them: the name is resolved once per try, checked, and connected to exactly that address. Redirects are not
followed, and nothing but the status of the answer is read."""

import asyncio
import contextlib
import hashlib
import logging
from collections.abc import AsyncGenerator, Sequence
from dataclasses import replace
from enum import Enum
from pathlib import Path
from weakref import WeakValueDictionary

from a2a.types import AuthenticationInfo, SendMessageConfiguration, TaskPushNotificationConfig
from a2a.utils.errors import InvalidParamsError, TaskNotFoundError
from a2a.utils.proto_utils import Event, to_stream_response
from google.protobuf.json_format import MessageToJson

from remit.core.delegation import ROOT_CALLER
from remit.core.errors import Misused, RemitError
from remit.core.events import EventKind, Step
from remit.core.states import State
from remit.server.a2a.messages import last_updates, state_update, task_of
from remit.server.a2a.threads import Note, Thread, Threads, Watcher
from remit.server.service import Service
from remit.system.http import (
    METADATA_NAMES,
    Address,
    AddressKind,
    Resolve,
    Target,
    UnreachableError,
    WebRequest,
    classify_address,
    parse_target,
    resolve,
    send_request,
    tls_context,
)
from remit.system.threads import off_loop

log = logging.getLogger("remit.server.a2a")
ANSWER_SECONDS = 10.0
TOKEN_HEADER = "X-A2A-Notification-Token"
MOST_WATCHERS = 10
"""Of one task."""
TRIES = 7
FIRST_PAUSE_SECONDS = 1.0
"""Doubled after each try: the last one is made after about a minute."""
KEPT_SECONDS = 7 * 86_400.0
AT_ONCE, THEIRS_AT_ONCE = 32, 6
"""Deliveries at a time, in all and of one principal: slow receivers hold up only their own principal."""
_LONGEST = 4096


class Outcome(Enum):
    TAKEN = "taken"
    FAILED = "failed"
    """Another try may succeed."""
    REFUSED = "refused"


class Post:
    """Posts one notification to an address that a client named."""

    def __init__(self, *, inside: bool, ca_file: Path | None = None, resolver: Resolve = resolve) -> None:
        self._inside = inside
        self._ca_file = ca_file
        self._resolve = resolver

    async def must_be_allowed(self, url: str) -> None:
        """Raises `Misused` with the same message whatever is there, so that nobody can explore our network."""
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                await self._checked(url)
        except (TimeoutError, UnreachableError):
            raise _not_allowed() from None

    async def __call__(self, watcher: Watcher, body: bytes) -> Outcome:
        headers = [("Content-Type", "application/json"), ("User-Agent", "remit")]
        if watcher.token:
            headers.append((TOKEN_HEADER, watcher.token))
        if watcher.scheme and watcher.credentials:
            headers.append(("Authorization", f"{watcher.scheme} {watcher.credentials}"))
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                target, addresses = await self._checked(watcher.url)
                tls = tls_context(self._ca_file) if target.scheme == "https" else None
                request = WebRequest(target=target, method="POST", headers=headers, body=body)
                async with send_request(request, addresses, tls) as answer:
                    status = answer.status
        except Misused:
            return Outcome.REFUSED
        except (TimeoutError, UnreachableError):
            return Outcome.FAILED
        if 200 <= status < 300:
            return Outcome.TAKEN
        return Outcome.FAILED if status >= 500 or status in (408, 425, 429) else Outcome.REFUSED

    async def _checked(self, url: str) -> tuple[Target, Sequence[Address]]:
        target = parse_target(url)
        if target.host in METADATA_NAMES:
            raise _not_allowed()
        addresses = [target.address] if target.address is not None else await self._resolve(target.host, target.port)
        if not addresses or not all(self._is_allowed(address) for address in addresses):
            raise _not_allowed()
        return target, addresses

    def _is_allowed(self, address: Address) -> bool:
        kind = classify_address(address)
        return kind is AddressKind.PUBLIC or (self._inside and kind in (AddressKind.LOOPBACK, AddressKind.PRIVATE))


def _not_allowed() -> Misused:
    advice = "Use a public address; [serve] push_inside = true allows addresses inside the network."
    return Misused("Notifications cannot be sent to that address.", advice=advice)


class PushNotifications:
    """One sender for each watcher of each task. Senders are idle while nothing happens."""

    def __init__(self, service: Service, threads: Threads, post: Post) -> None:
        self._service = service
        self._threads = threads
        self._post = post
        self._senders: dict[tuple[str, str], asyncio.Task[None]] = {}
        self._again: set[tuple[str, str]] = set()
        """Senders that were woken while they were busy."""
        self._room = asyncio.Semaphore(AT_ONCE)
        self._theirs: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()

    async def start(self) -> None:
        """Continues what the server before had not delivered."""
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

    # ---- watchers

    async def wanted(self, configuration: SendMessageConfiguration) -> Watcher | None:
        """The watcher in a message, checked before anything begins. Raises `Misused`."""
        if not configuration.HasField("task_push_notification_config"):
            return None
        return await self._checked(configuration.task_push_notification_config)

    async def _checked(self, config: TaskPushNotificationConfig) -> Watcher:
        watcher = _watcher(config)
        await self._post.must_be_allowed(watcher.url)
        return watcher

    async def create(self, thread: Thread, config: TaskPushNotificationConfig) -> TaskPushNotificationConfig:
        watcher = await self._checked(config)
        await self.begun(thread.task_id, watcher)
        return _config(thread.task_id, watcher)

    async def begun(self, task_id: str, watcher: Watcher | None) -> None:
        """A delegation was begun or continued, or a watcher was added."""

        def kept(note: Note) -> Note:
            assert watcher is not None
            known = note.watcher(watcher.config_id)
            if known is None:
                note = note.with_watcher(watcher)
            else:  # it continues where it was; a changed one may be reachable again
                fresh = replace(watcher, session=known.session, told=known.told)
                note = note.with_watcher(fresh) if replace(fresh, is_done=known.is_done) != known else note
            if len(note.watchers) > MOST_WATCHERS:
                raise InvalidParamsError(f"A task has at most {MOST_WATCHERS} push notification configs; delete one first.")
            return note

        if watcher is not None:
            await off_loop(self._threads.notes.change, task_id, kept)
        self.wake(task_id)

    def get(self, thread: Thread, config_id: str) -> TaskPushNotificationConfig:
        watcher = thread.note.watcher(config_id)
        if watcher is None:
            raise TaskNotFoundError(f"Task {thread.task_id} has no push notification config {config_id[:80]}.")
        return _config(thread.task_id, watcher)

    def all(self, thread: Thread) -> list[TaskPushNotificationConfig]:
        return [_config(thread.task_id, watcher) for watcher in thread.note.watchers]

    async def delete(self, thread: Thread, config_id: str) -> None:
        """Idempotent."""
        if (sender := self._senders.pop((thread.task_id, config_id), None)) is not None:
            sender.cancel()
        await off_loop(self._threads.notes.change, thread.task_id, lambda note: note.without_watcher(config_id))

    # ---- delivery

    def wake(self, task_id: str) -> None:
        """The state of the task may have changed."""
        key = (task_id, "")
        if key not in self._senders:
            self._senders[key] = asyncio.create_task(self._start_senders(task_id))

    async def _start_senders(self, task_id: str) -> None:
        try:
            note = await off_loop(self._threads.notes.of, task_id)
        finally:
            self._senders.pop((task_id, ""), None)
        for watcher in note.watchers:
            key = (task_id, watcher.config_id)
            if key in self._senders:
                self._again.add(key)
            elif not watcher.is_done:
                self._senders[key] = asyncio.create_task(self._send(task_id, watcher.config_id))

    async def _send(self, task_id: str, config_id: str) -> None:
        key = (task_id, config_id)
        try:
            while True:
                self._again.discard(key)
                await self._send_changes(task_id, config_id)
                if key not in self._again:
                    return
        except RemitError as error:
            log.warning("Notifications of %s end: %s", task_id, error)
        finally:
            if self._senders.get(key) is asyncio.current_task():
                del self._senders[key]

    async def _send_changes(self, task_id: str, config_id: str) -> None:
        """Until the task has ended, or waits for input."""
        notes = self._threads.notes
        record = await off_loop(self._service.remit.store.get, task_id)
        if record is None:
            return
        thread = await off_loop(self._threads.whole, record)
        principal = record.caller_info.principal if record.caller_info is not None else ROOT_CALLER
        async with contextlib.aclosing(self._changes(thread, config_id)) as changes:
            async for number, updates, is_end in changes:
                watcher = (await off_loop(notes.of, task_id)).watcher(config_id)
                if watcher is None or watcher.is_done:
                    return
                for update in updates:
                    if not await self._deliver(principal, watcher, update):
                        log.warning("A notification of %s could not be delivered: no more are sent.", task_id)
                        is_end = True  # later ones would arrive out of order
                        break
                sent = replace(watcher, session=thread.record.session_id, told=number, is_done=is_end)
                await off_loop(notes.change, task_id, lambda note, sent=sent: note.with_watcher(sent) if note.watcher(config_id) else note)
                if is_end:
                    return

    async def _changes(self, thread: Thread, config_id: str) -> AsyncGenerator[tuple[int, Sequence[Event], bool], None]:
        """State changes that were not sent yet: a number, the updates, and whether it was the last."""
        record, watcher = thread.record, thread.note.watcher(config_id)
        after = watcher.told if watcher is not None and watcher.session == record.session_id else 0
        if thread.is_cancelled:
            yield after + 1, await off_loop(self._last_updates, thread), True
            return
        async with contextlib.aclosing(self._service.remit.follow(record.session_id, after)) as events:
            async for event in events:
                if event.kind is EventKind.STEP and event.body.get("step") == Step.ROUTE_TO_AGENT:
                    yield event.number, [state_update(record, State.RUNNING, event.at)], False
                elif event.kind in (EventKind.COMPLETE, EventKind.ERROR):
                    ended = await self._service.remit.describe(record.session_id)
                    thread = replace(thread, records=(*thread.records[:-1], ended))
                    yield event.number, await off_loop(self._last_updates, thread), not thread.waits
                    return

    def _last_updates(self, thread: Thread) -> Sequence[Event]:
        return last_updates(task_of(thread.record, self._service.remit.root, is_cancelled=thread.is_cancelled))

    async def _deliver(self, principal: str, watcher: Watcher, update: Event) -> bool:
        body = MessageToJson(to_stream_response(update), indent=None).encode()
        theirs = self._theirs.setdefault(principal, asyncio.Semaphore(THEIRS_AT_ONCE))
        for attempt in range(TRIES):
            if attempt:
                await asyncio.sleep(FIRST_PAUSE_SECONDS * 2 ** (attempt - 1))
            async with theirs, self._room:
                outcome = await self._post(watcher, body)
            if outcome is not Outcome.FAILED:
                return outcome is Outcome.TAKEN
        return False


def _watcher(config: TaskPushNotificationConfig) -> Watcher:
    authentication = config.authentication
    given = (config.id, config.url, config.token, authentication.scheme, authentication.credentials)
    if not config.url:
        raise InvalidParamsError("A push notification config needs a url.")
    if any(len(text) > _LONGEST or not text.isprintable() for text in given):
        raise InvalidParamsError(f"Fields of a push notification config have at most {_LONGEST} printable characters.")
    if not "".join(given[2:]).isascii():
        raise InvalidParamsError("Token and credentials are sent as headers: ASCII only.")
    # The same id for the same config, so that a message sent again adds no second one.
    config_id = config.id or f"push_{hashlib.sha256(chr(0).join(given).encode()).hexdigest()[:12]}"
    return Watcher(config_id=config_id, url=given[1], token=given[2], scheme=given[3], credentials=given[4])


def _config(task_id: str, watcher: Watcher) -> TaskPushNotificationConfig:
    config = TaskPushNotificationConfig(id=watcher.config_id, task_id=task_id, url=watcher.url, token=watcher.token)
    if watcher.scheme:
        config.authentication.CopyFrom(AuthenticationInfo(scheme=watcher.scheme, credentials=watcher.credentials))
    return config
