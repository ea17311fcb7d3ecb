"""`WorkerDelegation`, `ResearcherDelegation`, `CoderDelegation`: a target of a remit that serves, delegated to from another program.

    async with WorkerDelegation("unix:/path/of/the/project/.remit/run/grpc.sock") as worker:
        result = await worker.delegate({"target": "worker", "operation": "read_file", "parameters": {"path": "README.md"}})

A request is that of the delegate tool, judged here in the order of S5.3 before anything is sent; a faulty one raises `DelegateError`, one
that the server does not let in `Refused`. Everything else is a `DelegateResult`, also what could not be reached. Never waits longer than
the timeout and its grace. Needs no project of its own.
"""

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, Mapping
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar, Generic, Self, TypeVar

from remit.client.configs import CoderConfig, DelegationConfig, ResearcherConfig, WorkerConfig
from remit.client.discovering import discover
from remit.core.errors import Misused, Refused, RemitError
from remit.tool.chunks import Chunk, ended
from remit.tool.missing import needs
from remit.tool.result import DelegateResult, TaskState, result_of_error

with needs("grpc", "grpc", "google"):
    import grpc.aio

    from remit.client.judging import Judge, Judged
    from remit.tool.elsewhere.connecting import Reach
    from remit.tool.elsewhere.following import Errand, Following, GaveUp
    from remit.tool.elsewhere.service import TaskService

CANCEL_SECONDS = 2.0
"""So long whoever is cancelled waits until its task is cancelled too."""
Config = TypeVar("Config", bound=DelegationConfig)


class Delegation(Generic[Config]):
    """What the three have in common."""

    config_class: ClassVar[type[DelegationConfig]]

    def __init__(
        self,
        channel_or_address: "grpc.aio.Channel | str | None" = None,
        config: Config | Mapping[str, Any] | None = None,
        *,
        token: str | None = None,
        ca_file: str | Path | None = None,
        certificate_file: str | Path | None = None,
        key_file: str | Path | None = None,
    ) -> None:
        """At an address (`unix:/path`, `host:port`), over a channel of one's own, or, without either, at the server of the project here.

        `token`: made by `remit token new`; `ca_file`: who signed the server's certificate; the other two: ours, for mutual TLS.
        """
        self._config = self._read_config(config)
        if channel_or_address is None:
            found = discover()
            channel_or_address, token = found.address, token or found.token
        if isinstance(channel_or_address, str):
            reach = Reach(
                address=channel_or_address,
                token=lambda: token,
                ca_file=ca_file,
                certificate_file=certificate_file,
                key_file=key_file,
            )
            reach.where()
            self._service = TaskService(reach)
        elif token or ca_file or certificate_file or key_file:
            raise Misused("A channel has its own credentials.", advice="Pass an address with them, or the channel alone.")
        else:
            self._service = TaskService(channel=channel_or_address)
        self._judge = Judge(self.config_class.target)
        self._left: set[asyncio.Task[Any]] = set()

    def _read_config(self, config: Config | Mapping[str, Any] | None) -> Config:
        if config is not None and not isinstance(config, Mapping):
            if not isinstance(config, self.config_class):
                raise Misused(f"{type(self).__name__} takes a {self.config_class.__name__}, not a {type(config).__name__}.")
            return config
        fresh: Config = self.config_class()  # type: ignore[call-arg, assignment]  # each has defaults for all of it
        return fresh.changed(config) if config else fresh

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self.close()

    async def close(self) -> None:
        """Ends no task: those that run go on, and are found again by their ids."""
        if self._left:
            await asyncio.wait(self._left, timeout=CANCEL_SECONDS)
        await self._service.close()

    # ---- how

    def get_config(self) -> Config:
        return self._config

    def update_config(self, changes: Mapping[str, Any] | None = None, /, **more: Any) -> Config:
        """For what is asked from now on. Raises `Misused`, and nothing is changed."""
        self._config = self._config.changed({**(changes or {}), **more})
        return self._config

    # ---- delegating

    async def delegate(self, params: Mapping[str, Any], session_id: str = "") -> DelegateResult:
        """Have it done and give the result. Cancelling the call cancels the task."""
        judged, asked_at = self._judge.read(params, self._config, session_id), time.time()
        following = self._following(judged)
        try:
            async with contextlib.aclosing(following.chunks()) as chunks:
                async for chunk in chunks:
                    if chunk.result is not None:
                        return chunk.result
        except asyncio.CancelledError:
            await self._give_back(following)
            raise
        except (Misused, Refused):
            raise
        except RemitError as error:
            return _result_of(error, judged, asked_at, following.task_id)
        raise AssertionError("a stream of chunks ends with a result or raises")

    async def stream(self, params: Mapping[str, Any], session_id: str = "") -> AsyncGenerator[Chunk]:
        """What it says while it runs; the last chunk has the object that `delegate` gives. Whoever stops listening does not stop it."""
        judged, asked_at = self._judge.read(params, self._config, session_id), time.time()
        following = self._following(judged)
        try:
            async with contextlib.aclosing(following.chunks()) as chunks:
                async for chunk in chunks:
                    yield chunk
        except (Misused, Refused):
            raise
        except RemitError as error:
            yield ended(_result_of(error, judged, asked_at, following.task_id))

    async def look(self, task_id: str) -> DelegateResult:
        """How a task stands, whoever began it."""
        return await self._service.look(task_id)

    async def cancel(self, task_id: str, reason: str = "", *, force: bool = False) -> DelegateResult:
        """Stop it and everything below it; how it stands then."""
        return await self._service.cancel(task_id, reason, force=force)

    def _following(self, judged: "Judged") -> "Following":
        config = self._config
        errand = Errand(
            request=judged.message,
            until=time.monotonic() + judged.timeout_seconds + config.grace / 1000,
            reach_seconds=config.connect_timeout / 1000,
            is_streamed=config.enable_streaming,
            poll_seconds=config.poll_interval / 1000,
        )
        return Following(self._service, errand)

    async def _give_back(self, following: "Following") -> None:
        """Cancel there what was cancelled here, as far as that can be done in a moment."""
        cancelling = asyncio.ensure_future(following.give_back("its caller was cancelled"))
        self._left.add(cancelling)
        cancelling.add_done_callback(self._left.discard)
        cancelling.add_done_callback(lambda done: done.cancelled() or done.exception())
        await asyncio.wait((cancelling,), timeout=CANCEL_SECONDS)


def _result_of(error: RemitError, judged: "Judged", asked_at: float, task_id: str | None) -> DelegateResult:
    result = result_of_error(error, judged.agent, asked_at, time.time(), task_id)
    if isinstance(error, GaveUp) and task_id is not None and result.error is not None:
        return replace(result, task_state=TaskState.TIMEOUT, error=replace(result.error, code="TASK_TIMEOUT"))
    return result


class WorkerDelegation(Delegation[WorkerConfig]):
    """Files of the workspace, and the web (S5.2)."""

    config_class = WorkerConfig


class ResearcherDelegation(Delegation[ResearcherConfig]):
    config_class = ResearcherConfig


class CoderDelegation(Delegation[CoderConfig]):
    config_class = CoderConfig
