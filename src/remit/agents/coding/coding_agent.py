"""Command-line coding agents (`claude`, `codex`, `opencode`) as agents, in a resumable session.

`CodingAgent` builds the prompts and finds the answer, `Run` runs the program once, `Listener` forwards its output, and a dialect speaks the
vendor's format. `runtime.perform` validates the answer and asks again."""

import asyncio
import contextlib
import json
import re
import shutil
import signal
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from remit.agents.coding.detect import KNOWN
from remit.agents.coding.dialects import POLL_SECONDS, SEARCH_SECONDS, Claude, Codex, Dialect, OpenCode, Rollout, Scope, Turn
from remit.agents.command import (
    check_own_tools,
    environment_for,
    exit_words,
    feed,
    folder_of,
    out_of_time,
    programs_of,
    return_file_of,
    session_prompt,
    set_aside,
    without_variables,
)
from remit.agents.definition import NO_SIGNAL, Definition, Kind, checked_task
from remit.agents.process.command_process import CommandProcess, Program, ProgramStarter
from remit.agents.prompt import first_prompt, hand_in_prompt
from remit.agents.transcript import OVER, Tail, ToolCalls, Words, find_return
from remit.core.agents import AgentSpec, Answers
from remit.core.context import Context
from remit.core.errors import AgentCrashed, Failed, RemitError, Stopped, Unavailable
from remit.models.prices import UNPRICED, TokenUsage
from remit.system.threads import off_loop

if TYPE_CHECKING:
    from remit.agents.executors import ExecutorDeps
    from remit.models.client import Models

# ---- errors

_WORDS_CHARACTERS = 700
LOGIN = {
    "claude": "Log in once: run `claude` and type /login, or set ANTHROPIC_API_KEY where remit is started.",
    "codex": "Log in once: run `codex login`, or set OPENAI_API_KEY (codex login --with-api-key) where remit is started.",
    "opencode": "Log in once: run `opencode auth login`, or set your provider's key and name it in pass_environment.",
}
_SESSION_GONE = re.compile(r"no conversation found|no rollout found|session not found|thread not found", re.IGNORECASE)
_LOGIN = re.compile(
    r"not logged in|/login|log ?in again|invalid (?:x-)?api[- _]?key|incorrect api key|authenticat|unauthori[sz]ed|missing bearer"
    r"|token (?:has )?expired|no auth credentials|api key is missing|no providers? ",
    re.IGNORECASE,
)
_LATER = re.compile(
    r"limit|too many requests|overloaded|high demand|quota|credit|capacity|connect|network|econn|fetch failed|socket|timed out|resolve"
    r"|unavailable|gateway|server.error|stream error",
    re.IGNORECASE,
)
"""Vendors' messages about a busy or unreachable service: a retry may succeed."""
_STATUS = re.compile(r"\b(?:status:?|error:?|http)\s*(?:code:?\s*)?([45]\d\d)\b", re.IGNORECASE)


def is_session_gone(words: str) -> bool:
    """Whether the session is unknown: started in another folder, or removed."""
    return _SESSION_GONE.search(words) is not None


def error_for(vendor: str, message: str, status: int | None = None) -> RemitError:
    """Convert a vendor's error, with its own message: log in, retry later, or failed."""
    words = " ".join(message.split())[:_WORDS_CHARACTERS] or "no reason given"
    if status is None and (found := _STATUS.search(words)):
        status = int(found[1])
    if status in (401, 403) or (status is None and _LOGIN.search(words)):
        return Unavailable(f"{vendor} is not logged in, or its key is not accepted: {words}", advice=LOGIN[vendor])
    if status == 429 or (status is not None and status >= 500) or (status is None and _LATER.search(words)):
        return Unavailable(f"The model of {vendor} is at its limit, overloaded or not reachable: {words}", advice="Try again later.")
    return Failed(f"{vendor} ended with an error: {words}", advice=f"Change the task or its model, or run {vendor} by hand to see more.")


def crash_of(vendor: str, run: "Run") -> RemitError:
    """It ended without an answer or an error in its stream: its last output may give the reason."""
    words = f"{run.stderr}\n{run.listener.printed.text()}".strip()
    if _LOGIN.search(words):
        return error_for(vendor, words[-_WORDS_CHARACTERS:])
    return AgentCrashed(
        f"{vendor} {'ended' if run.code is None else exit_words(run.code)} without an answer.",
        exit_code=run.code,
        stderr_tail=words[-2000:],
        advice=f"Run {vendor} by hand in the same folder to see more, and delegate it again.",
    )


# ---- what it says

_NOT_ALLOWED = "nothing in its allow-list fits"
_SESSION = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:-]{0,199}")


def is_session(name: object) -> bool:
    """Whether a vendor's session name is safe as an argument: not an option, not a path, no special characters."""
    return isinstance(name, str) and _SESSION.fullmatch(name) is not None


class UsageCounter:
    """Tokens and money of one run, each counted once even if repeated."""

    def __init__(self, before: int = 0) -> None:
        """`before`: tokens of the session that earlier runs counted."""
        self._before = before
        self._items: dict[str, tuple[int, float]] = {}
        self._tokens, self._cost = 0, 0.0

    @property
    def session_tokens(self) -> int:
        return self._before + self._tokens

    def more(self, scope: Scope, tokens: int, cost: float, key: str) -> tuple[int, float]:
        """The part that is not counted yet."""
        if scope is Scope.ITEM:
            known = self._items.get(key, (0, 0.0))
            self._items[key] = (max(known[0], tokens), max(known[1], cost))
        else:
            known = (self._tokens if scope is Scope.RUN else self.session_tokens, self._cost)
        more = max(0, tokens - known[0]), max(0.0, cost - known[1])
        self._tokens += more[0]
        self._cost += more[1]
        return more


class Listener:
    """Forwards the output of one run; the dialect reports its parsed lines."""

    def __init__(self, ctx: Context, vendor: str, session: str | None, counted: int, models: "Models", model: str | None) -> None:
        """`model`: the one in its declaration, for vendors that do not report it."""
        self._ctx = ctx
        self._vendor = vendor
        self.models = models
        self._model = model
        self._is_unpriced = False
        self._usage = UsageCounter(counted)
        self._last, self.whole = Tail("\n\n"), Tail("\n\n")
        self.printed = Tail()
        """Output outside its stream."""
        self._tools = ToolCalls(ctx)
        self._words = Words(ctx)
        self._kept: object = None
        self.session = session
        self.final: str | None = None
        self.over = asyncio.Event()
        """Set when the turn has ended by its own report."""
        self.is_broken = False
        self.error: tuple[str, int | None] | None = None
        self.is_hopeless = False

    @property
    def is_over(self) -> bool:
        return self.over.is_set()

    @property
    def last(self) -> str:
        """Its answer: its final message, or its last text."""
        return self.final or self._last.text()

    # ---- a vendor's events

    def started(self, session: str) -> None:
        if is_session(session) and session != self.session:
            self._ctx.progress(f"Session {session} of {self._vendor}.")
            self.session = session

    def said(self, text: str) -> None:
        if text.strip():
            self._last.add(text)
            self.whole.add(text)
            self._words.end_message()
            self._words.say(text)

    def tool(self, name: str, detail: str, status: str, *, call_id: str = "", why: str = "") -> None:
        """The state of a tool call: pending, completed or failed. Later reports may omit details."""
        self._last.clear()  # text after a tool call is a new message
        self._words.end_message()
        if status in OVER:
            self._tools.end(call_id, status, kind=name, title=detail, why=why)
        else:
            self._tools.begin(call_id, name, detail)

    def spent(
        self, scope: Scope, tokens: int, *, cost: float = 0.0, key: str = "", model: str = "", used: TokenUsage | None = None
    ) -> None:
        """Tokens and money. If the vendor reports no cost, `used` is priced as tokens of `model`."""
        if not cost and used is not None:
            cost = self._cost(model, used)
        more = self._usage.more(scope, tokens, cost, key)
        if any(more):
            self._ctx.spend(tokens=more[0], cost=more[1])

    def _cost(self, model: str, used: TokenUsage) -> float:
        """0 if the price is unknown, with one warning if the budget limits money."""
        bare = model.rpartition(":")[2]
        for name in filter(None, (bare, self._model, model, bare and f"openai:{bare}")):
            if (cost := self.models.cost(name, used)) is not None:
                return cost
        if not self._is_unpriced and used.tokens and self._ctx.budget.cost is not None:
            self._is_unpriced = True
            self._ctx.progress(UNPRICED)
        return 0.0

    def denied(self, name: str, detail: str, *, call_id: str = "") -> None:
        self._tools.deny(call_id, name, detail, _NOT_ALLOWED)

    def note(self, message: str) -> None:
        self._ctx.progress(message)

    def ended(self, text: str | None = None) -> None:
        """The turn has ended with this answer; None: its last text."""
        self.final, self.error = text, None
        self.over.set()

    def interrupted(self) -> None:
        self.is_broken = True

    def failed(self, message: str, status: int | None = None, *, is_hopeless: bool = False) -> None:
        """The vendor's error. `is_hopeless`: the program retries in vain and is not awaited."""
        self.error, self.is_hopeless = (message, status), is_hopeless
        self._ctx.progress(f"{self._vendor}: {message}")

    # ---- the rest

    def plain(self, text: str) -> None:
        """A line that is not JSON: possibly the whole output of this program."""
        self.printed.add(text)
        if text.strip():
            self._ctx.emit(text)

    def end(self, *, is_whole: bool) -> None:
        """The output has ended. `is_whole`: its turn is complete, so its last text is its answer."""
        with contextlib.suppress(Stopped):  # its delegation has ended
            if is_whole:
                self._words.end_turn()
                return
            if self.final and self.final != self._last.text():
                self.said(self.final)  # returned with its partial work
            self._words.end_message()

    async def keep(self) -> None:
        """Checkpoint the session and its counted tokens, for a run that resumes it."""
        kept = {"vendor": self._vendor, "session": self.session, "tokens": self._usage.session_tokens}
        if self.session is None or kept == self._kept:
            return
        try:
            await self._ctx.checkpoint(kept)
            self._kept = kept
        except Unavailable as error:
            self._ctx.progress(f"The session {self.session} of {self._vendor} could not be kept: {error.message}")


# ---- one run of its program

SETTLE_SECONDS = 2.0
"""Time for an interrupted or finished program to save its session and exit."""
_BREATH = 32
"""Lines after which other tasks may run: a flood must not block the loop."""


@dataclass(slots=True)
class Run:
    dialect: Dialect
    ctx: Context
    listener: Listener
    is_told: bool
    """Whether it is interrupted at the soft deadline."""
    rollout: Rollout | None
    """Where it records the usage of its requests."""
    code: int | None = None
    """Exit code; None: not awaited."""
    stderr: str = ""
    was_interrupted: bool = False
    has_begun: bool = False
    """Whether it printed anything."""

    @property
    def is_done(self) -> bool:
        """Whether its turn is complete, by its own report or its exit code."""
        return self.listener.is_over or (self.code == 0 and not self.listener.is_broken)

    async def to_the_end(self, pool: ProgramStarter, program: Program, prompt: str) -> None:
        tasks: list[asyncio.Task[Any]] = []
        is_whole = False
        spawned: CommandProcess | None = None
        try:
            async with pool.spawn(program, self.ctx) as spawned:
                work = (
                    self._listen(spawned),
                    self._run_out(spawned),
                    self._follow_rollout(),
                    feed(spawned, prompt.encode("utf-8", "replace")),
                )
                tasks = [asyncio.create_task(one) for one in work]
                await asyncio.wait(tasks[:2], return_when=asyncio.FIRST_COMPLETED)
                self.code = tasks[0].result() if tasks[0].done() else None
                is_whole = self.is_done
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            with contextlib.suppress(Stopped, OSError):
                await self._read_rollout()
            self.stderr = spawned.stderr_tail() if spawned is not None else ""
            self.listener.end(is_whole=is_whole)
        with contextlib.suppress(Stopped):
            await self.listener.keep()

    async def _listen(self, spawned: CommandProcess) -> int | None:
        """Read to the end of the stream, not of the turn: a program may report completion while others still work.

        Returns the exit code, which may come long after its last output; None: not worth waiting for."""
        await self.listener.models.load_prices()
        number = 0
        while not self.listener.is_hopeless:
            number += 1
            if number % _BREATH == 0:
                await asyncio.sleep(0)
            try:
                line = await spawned.stdout.readline()
            except ValueError:
                self.ctx.progress("A line of its stream was too long to be read.")
                continue
            if not line:
                return await spawned.wait()
            self.has_begun = True
            await self._hear(line)
        return None

    async def _follow_rollout(self) -> None:
        """Draw its usage during the turn."""
        while self.rollout is not None:
            await self._read_rollout()
            await asyncio.sleep(POLL_SECONDS if self.rollout.is_found else SEARCH_SECONDS)

    async def _read_rollout(self) -> None:
        if self.rollout is None:
            return
        if not self.rollout.is_found and self.listener.session is not None:
            await off_loop(self.rollout.find, self.listener.session)  # among those of years
        self.rollout.read(self.listener)

    async def _hear(self, line: bytes) -> None:
        text = line.decode("utf-8", "replace")
        try:
            said = json.loads(text) if text.lstrip().startswith("{") else None
        except (ValueError, RecursionError):
            said = None
        if not isinstance(said, dict) or not isinstance(said.get("type"), str):
            self.listener.plain(text)
            return
        before = self.listener.session
        try:
            self.dialect.read(said, self.listener)
        finally:
            if self.listener.session != before:
                await self.listener.keep()

    async def _run_out(self, spawned: CommandProcess) -> None:
        """Return when waiting is no longer useful, never before the soft deadline.

        Then its turn is ended, so that it can be asked for its result. A program that reported completion but does not exit is left: its
        answer must not be lost."""
        await self.ctx.wait_hand_in()
        # If no time is left for another question, or without a session for it, it continues. A stop also ends the wait.
        has_time = self.ctx.remaining >= self.dialect.hand_in_seconds
        if self.ctx.hand_in and self.is_told and has_time and self.listener.session is not None and not self.listener.is_over:
            self.ctx.progress("Its time is nearly up: it is interrupted and asked for its result so far.")
            self.was_interrupted = True
            spawned.signal(signal.SIGINT)
            await asyncio.sleep(SETTLE_SECONDS)
            return
        await self.listener.over.wait()
        await asyncio.sleep(min(SETTLE_SECONDS, max(0.0, self.ctx.remaining / 2)))


# ---- the agent

STARTS = 3
STARTED_AGAIN = "It ended before it began: another process of it was preparing the database that they share. It is started again."
_DATABASE_BUSY = re.compile(r"failed query|database is locked|database table is locked|SQLITE_BUSY", re.IGNORECASE)
"""Of several processes of OpenCode that are started at once, only one prepares their database; the others may fail."""
DIALECTS: Mapping[str, Callable[[], Dialect]] = {Kind.CLAUDE: Claude, Kind.CODEX: Codex, Kind.OPENCODE: OpenCode}
_ANSWER_SECONDS = 1.0
"""Part of the remaining time that is not promised to an agent that is asked for its result."""


class CodingAgent:
    __slots__ = ("_deps", "_dialect", "_pool", "definition", "spec")

    def __init__(self, definition: Definition, deps: "ExecutorDeps") -> None:
        self.spec: AgentSpec = definition.spec
        self.definition = definition
        self._deps = deps
        self._dialect = DIALECTS[definition.kind]()
        self._pool = programs_of(definition, deps)

    def check(self, parameters: dict[str, Any]) -> dict[str, Any]:
        return checked_task(self.spec.name, parameters)

    async def perform(self, ctx: Context, arguments: Mapping[str, Any]) -> str:
        if ctx.hand_in and ctx.remaining < self._dialect.hand_in_seconds:
            raise out_of_time(self.definition, "gave no valid return, and there is no time to ask again")
        check_own_tools(self.definition)
        set_aside(ctx)  # of its first answer, if it is asked again: it must not be mistaken for the second
        first = first_prompt(self.definition, ctx, arguments)
        session, counted = _kept_session(ctx.saved, self._dialect.vendor)
        run = await self._ask(ctx, session_prompt(self.definition, ctx, first, is_known=session is not None), session, counted)
        if session is not None and _has_forgotten(run):
            ctx.progress(f"{self._dialect.vendor} no longer has the session {session}: it starts a new one.")
            run = await self._ask(ctx, session_prompt(self.definition, ctx, first, is_known=False), None, 0)
        if run.was_interrupted and not run.is_done:  # it may have been done at that very moment
            return await self._ask_to_hand_in(ctx, run.listener.session)
        return await self._answer(ctx, run)

    async def _ask_to_hand_in(self, ctx: Context, session: str | None) -> str:
        """One more question in the same session. Failures now count as the deadline: the partial work is returned."""
        if session is None or ctx.remaining < self._dialect.hand_in_seconds / 2:
            raise out_of_time(self.definition, "was interrupted, and cannot be asked for its result")
        _, counted = _kept_session(ctx.saved, self._dialect.vendor)
        prompt = hand_in_prompt(ctx, ctx.remaining - _ANSWER_SECONDS, self.spec.output_schema)
        try:
            return await self._answer(ctx, await self._ask(ctx, prompt, session, counted, is_last=True))
        except Stopped:
            raise
        except RemitError as error:
            raise out_of_time(self.definition, f"could not return its result ({error.message})") from error

    # ---- one run of the program

    async def _ask(self, ctx: Context, prompt: str, session: str | None, counted: int, *, is_last: bool = False) -> Run:
        is_told = self.definition.hand_in != NO_SIGNAL and not is_last and not ctx.hand_in
        for starts_left in reversed(range(STARTS)):
            listener = Listener(ctx, self._dialect.vendor, session, counted, self._deps.models, self.definition.model)
            is_contained = await self._pool.contains()
            program = self._program(ctx, session, is_contained=is_contained)
            rollout = self._rollout(program, session, is_contained=is_contained)
            run = Run(DIALECTS[self.definition.kind](), ctx, listener, is_told, rollout)
            await run.to_the_end(self._pool, program, prompt)
            if not starts_left or run.has_begun or not run.code or _DATABASE_BUSY.search(run.stderr) is None:
                break
            ctx.progress(STARTED_AGAIN)
        return run

    def _rollout(self, program: Program, session: str | None, *, is_contained: bool) -> Rollout | None:
        folder = self._dialect.rollouts(program.environment)
        if folder is not None and is_contained:
            from remit.agents.containment.vendor_home import sessions_folder

            folder = sessions_folder(self._dialect.vendor, (str(self._deps.root), self.definition.name))
        return None if folder is None else Rollout(folder, is_resumed=session is not None)

    def _program(self, ctx: Context, session: str | None, *, is_contained: bool) -> Program:
        given = environment_for(self.definition, ctx, more_names=self._dialect.variables)
        environment = without_variables(given, self._dialect.never_passed, self.definition)
        turn = Turn(
            definition=self.definition,
            environment=environment,
            folder=folder_of(self.definition, ctx),
            scratch=ctx.scratch,
            delegation_id=ctx.session_id,
            session=session,
            is_contained=is_contained,
            is_limited=ctx.budget.tokens is not None or ctx.budget.cost is not None,
        )
        argv, whole = self._dialect.command_line(turn)
        program = argv[0]
        if "/" not in program and shutil.which(program, path=environment.get("PATH")) is None:
            install = next(one.install for one in KNOWN if one.name == self._dialect.vendor)
            where = f'command = ["/path/to/{program}"]. Looked for in PATH: {environment.get("PATH", "")}.'
            raise Unavailable(f"The program {program} was not found.", advice=f"Install it: {install}. Or name where it is: {where}")
        return Program(argv=tuple(argv), environment=whole, folder=turn.folder, takes_input=True)

    # ---- what comes of it

    async def _answer(self, ctx: Context, run: Run) -> str:
        """Its last message; all of its text if that alone contains no return. Raises the vendor's error.

        However it ended, a submitted return counts, and so does its report of completion."""
        listener = run.listener
        if listener.error is not None:
            raise error_for(self._dialect.vendor, *listener.error)
        last = listener.last or listener.printed.text()
        if self.spec.answers is Answers.VALUE:
            answer, is_return = last.strip(), False
        else:
            answer, is_return = await off_loop(find_return, last, listener.whole.text() or last, return_file_of(ctx))
        if run.code == 0 or (run.code is None and listener.is_over) or is_return:
            return answer
        raise crash_of(self._dialect.vendor, run)


def _kept_session(saved: Any, vendor: str) -> tuple[str | None, int]:
    """The vendor's session saved by an earlier run, and its counted tokens."""
    if not isinstance(saved, dict) or saved.get("vendor") != vendor:
        return None, 0
    session, counted = saved.get("session"), saved.get("tokens")
    if not is_session(session):
        return None, 0
    return session, counted if isinstance(counted, int) and counted >= 0 else 0


def _has_forgotten(run: Run) -> bool:
    listener = run.listener
    words = listener.error[0] if listener.error is not None else ""
    is_gone = is_session_gone(f"{words}\n{run.stderr}\n{listener.printed.text()}")
    return is_gone and not listener.whole.text() and not run.was_interrupted
