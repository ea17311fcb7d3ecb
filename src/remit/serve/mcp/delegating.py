"""The six tools carried out: each a method that takes arguments and gives a tool's answer. Everything goes through the one door, `Remit`.

Knows no transport. A request that is cancelled stops waiting and nothing else: the delegation it began goes on.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mcp_types import CallToolResult

from remit.core.errors import Misused, RemitError
from remit.core.events import Event
from remit.core.result import Return
from remit.flow.context import Handle
from remit.serve.mcp import answers, looking
from remit.serve.mcp.asking import DELEGATION_EXTRAS, arguments_of, milliseconds, session_of, whole_number
from remit.serve.mcp.calling import LOCAL
from remit.serve.mcp.listing import agents_document
from remit.serve.mcp.shortening import PAGE_CHARACTERS, json_text, page_of
from remit.serve.mcp.tools import MANY
from remit.serve.mcp.waiting import Progress, settled_within
from remit.serve.service import Call, Service
from remit.system.threads import off_loop
from remit.tool.catalogue import Catalogue

if TYPE_CHECKING:
    from remit.app import Remit

Tool = Callable[[Mapping[str, Any], Progress, Call], Awaitable[CallToolResult]]
FARTHEST = 10**9


class Delegations:
    def __init__(self, remit: "Remit", answer_after_seconds: float, service: Service | None = None) -> None:
        self._remit = remit
        self._answer_after = answer_after_seconds
        self._service = service or Service(remit)
        self.catalogue = self._service.tool.catalogue
        self.tools: dict[str, Tool] = {
            "delegate": self._delegate,
            "delegate_many": self._delegate_many,
            "delegation_status": self._status,
            "delegation_result": self._result,
            "delegation_cancel": self._cancel,
            "list_agents": self._list_agents,
        }

    async def call(self, name: str, arguments: Mapping[str, Any] | None, progress: Progress, call: Call = LOCAL) -> CallToolResult:
        """Whatever goes wrong is told to the model, in words it can act on."""
        try:
            return await self.tools[name](arguments or {}, progress, call)
        except RemitError as error:
            return answers.answer(answers.error_document(error), is_error=True)
        except Exception as error:  # noqa: BLE001 - the boundary to clients: a fault of ours is told as an error, never as a traceback
            fault = RemitError(f"{name} went wrong: {type(error).__name__}: {error}"[:400], advice="Look into it with `remit history`.")
            return answers.answer(answers.error_document(fault), is_error=True)

    def catalogue_for(self, call: Call) -> Catalogue:
        """The agents that it may use."""
        return self._service.tool_for(call).catalogue

    async def finish(self) -> None:
        """Until everything that this process runs has ended."""
        await self._service.finish()

    @property
    def is_busy(self) -> bool:
        return self._service.is_busy

    @property
    def _run_folder(self) -> Path:
        return self._remit.folder / "run"

    # ---- the tools

    async def _delegate(self, given: Mapping[str, Any], progress: Progress, call: Call) -> CallToolResult:
        request = self._service.read(call, given, (*DELEGATION_EXTRAS, "wait_ms"))
        wait = self._wait(request.also)
        handle = await self._service.execute(call, request)
        told = self._told(progress, request.target, handle.stream()) if progress.is_wanted else ()
        (done,) = await settled_within(wait, [handle.result()], told)
        return await self._outcome(handle.session_id, done, wait)

    async def _delegate_many(self, given: Mapping[str, Any], progress: Progress, call: Call) -> CallToolResult:
        arguments = arguments_of(given, "delegations", "wait_ms")
        wait = self._wait(arguments)
        asked = arguments.get("delegations")
        if not isinstance(asked, list) or not 1 <= len(asked) <= MANY:
            raise Misused(f"delegations must be a list of 1 to {MANY}.", advice="Describe each as for delegate.")
        begun = await asyncio.gather(*(self._begun(one, call) for one in asked))
        handles = [one for one in begun if not isinstance(one, RemitError)]
        told: list[Awaitable[None]] = []
        if progress.is_wanted:
            told = [progress.tell(handle.session_id, handle.stream()) for handle in handles]
            told.append(progress.beat(lambda: f"{len(handles)} delegations"))
        futures = iter(await settled_within(wait, [handle.result() for handle in handles], told))
        outcomes = [one if isinstance(one, RemitError) else await self._document(one.session_id, next(futures), wait) for one in begun]
        return self._many(outcomes)

    def _many(self, outcomes: Sequence[RemitError | Return | answers.Document]) -> CallToolResult:
        documents, links, failures, running = [], [], 0, 0
        for one in outcomes:
            if isinstance(one, Return):
                documents.append(answers.return_document(one))
                links += answers.links_of(one.artifacts, self._remit.root)
                failures += answers.is_failure(one)
            elif isinstance(one, RemitError):
                documents.append(answers.error_document(one))
                failures += 1
            else:
                documents.append(one)
                running += 1
        return answers.many_answer(documents, running=running, is_error=failures == len(documents), links=links[: answers.LINKS])

    async def _status(self, given: Mapping[str, Any], progress: Progress, call: Call) -> CallToolResult:
        arguments = arguments_of(given, "session_id")
        store, run_folder, now = self._remit.store, self._run_folder, time.time()
        if "session_id" not in arguments:
            return answers.answer(await off_loop(looking.living_document, store, run_folder, now, partial(self._service.may_see, call)))
        record = await self._service.record(call, session_of(arguments))
        return answers.answer(await off_loop(looking.status_document, store, run_folder, record, now))

    async def _result(self, given: Mapping[str, Any], progress: Progress, call: Call) -> CallToolResult:
        arguments = arguments_of(given, "session_id", "wait_ms", "offset", "limit")
        session_id, wait = session_of(arguments), self._wait(arguments)
        offset = whole_number("offset", arguments.get("offset", 0), least=0, most=FARTHEST)
        limit = whole_number("limit", arguments.get("limit", PAGE_CHARACTERS), least=1, most=FARTHEST)
        record = await self._service.minded(await self._service.record(call, session_id))
        if record.result is None:
            told = self._told(progress, record.agent, self._remit.follow(session_id)) if progress.is_wanted else ()
            await settled_within(wait + 1.0, [self._remit.result(session_id, wait_seconds=wait)], told)
            record = await self._remit.describe(session_id)
        result = record.result
        if result is None:
            return answers.answer(answers.handle_document(record, wait, time.time()))
        if "offset" in arguments or "limit" in arguments:
            page = page_of(json_text(result.to_dict()), offset, limit)
            return answers.answer({"session_id": session_id, "state": answers.return_document(result)["state"], "page": page})
        return answers.return_answer(result, self._remit.root)

    async def _cancel(self, given: Mapping[str, Any], progress: Progress, call: Call) -> CallToolResult:
        arguments = arguments_of(given, "session_id", "reason")
        session_id, reason = session_of(arguments), arguments.get("reason", "")
        if not isinstance(reason, str):
            raise Misused(f"reason must be text, not {reason!r:.60}.")
        await self._service.minded(await self._service.record(call, session_id))
        _, nodes = await self._service.cancel(call, session_id, reason)
        state = (await self._remit.describe(session_id)).state
        return answers.answer({"session_id": session_id, "state": str(state), "nodes": nodes})

    async def _list_agents(self, given: Mapping[str, Any], progress: Progress, call: Call) -> CallToolResult:
        arguments = arguments_of(given, "target", "offset")
        target, offset = arguments.get("target"), whole_number("offset", arguments.get("offset", 0), least=0, most=FARTHEST)
        catalogue = self.catalogue_for(call)
        if target is not None and target not in catalogue.targets():
            catalogue.find(target, None)  # says what there is
        remit = self._remit
        problems = remit.directory.problems if call.visitor.is_local else ()
        return answers.answer(agents_document(catalogue, remit.settings, target, offset, problems))

    # ---- beginning and ending

    def _told(self, progress: Progress, name: str, events: AsyncIterator[Event]) -> tuple[Awaitable[None], ...]:
        return progress.tell(name, events), progress.beat(lambda: f"{name} is still running")

    def _wait(self, arguments: Mapping[str, Any]) -> float:
        """Seconds to wait: never longer than clients do."""
        if "wait_ms" not in arguments:
            return self._answer_after
        return min(milliseconds("wait_ms", arguments["wait_ms"]) / 1000, self._answer_after)

    async def _begun(self, one: object, call: Call) -> Handle | RemitError:
        try:
            if not isinstance(one, Mapping):
                raise Misused(f"A delegation is an object, not {one!r:.60}.", advice="Describe it as for delegate.")
            return await self._service.execute(call, self._service.read(call, one, DELEGATION_EXTRAS))
        except RemitError as error:
            return error

    async def _outcome(self, session_id: str, done: "asyncio.Future[Return] | None", waited_seconds: float) -> CallToolResult:
        outcome = await self._document(session_id, done, waited_seconds)
        if isinstance(outcome, RemitError):
            raise outcome
        return answers.return_answer(outcome, self._remit.root) if isinstance(outcome, Return) else answers.answer(outcome)

    async def _document(
        self, session_id: str, done: "asyncio.Future[Return] | None", waited_seconds: float
    ) -> Return | RemitError | answers.Document:
        """The return, the error in its place, or a handle."""
        try:
            if done is not None:
                return done.result()
            record = await self._remit.describe(session_id)
        except RemitError as error:
            return error
        return record.result or answers.handle_document(record, waited_seconds, time.time())
