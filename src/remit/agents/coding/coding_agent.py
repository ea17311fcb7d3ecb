"""Coding agents of the command line (`claude`, `codex`, `opencode`) as agents, in a session that can be resumed.

`CodingAgent` decides what is asked and what counts as the answer, `Run` runs the program once, `Listener` passes on what it says, and a
dialect speaks the vendor's language. The flow judges the answer and asks again.
"""

import asyncio
import contextlib
import json
import re
import shutil
import signal
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Any

from remit.agents.coding.dialects import (
    Claude,
    Codex,
    Denial,
    Dialect,
    Interruption,
    Note,
    OpenCode,
    PlanUpdate,
    Scope,
    SessionStarted,
    TextMessage,
    TokenUse,
    ToolUse,
    Turn,
    TurnEnd,
    VendorError,
    VendorEvent,
)
from remit.agents.command import check_own_tools, environment_for, exit_words, feed, folder_of, return_file_of, session_prompt, set_aside
from remit.agents.definition import NO_SIGNAL, Definition, Kind, checked_task
from remit.agents.process.command_process import CommandProcess, Program
from remit.agents.process.pool import ProcessPool
from remit.agents.prompt import first_prompt, hand_in_prompt
from remit.agents.transcript import OVER, Tail, ToolCalls, Words, tell_plan
from remit.core.agents import AgentSpec, Answers
from remit.core.errors import AgentCrashed, Failed, RemitError, Stopped, Unavailable
from remit.runtime.context import Context
from remit.runtime.receive import looks_like_return, read_answer
from remit.system.threads import off_loop

if TYPE_CHECKING:
    from remit.agents.executors import ExecutorDeps

# ---- errors

_WORDS_CHARACTERS = 700
INSTALL = {
    "claude": "npm install -g @anthropic-ai/claude-code",
    "codex": "npm install -g @openai/codex",
    "opencode": "npm install -g opencode-ai",
}
LOGIN = {
    "claude": "Log in once: run `claude` and type /login, or set ANTHROPIC_API_KEY where remit is started.",
    "codex": "Log in once: run `codex login`, or set OPENAI_API_KEY (codex login --with-api-key) where remit is started.",
    "opencode": "Log in once: run `opencode auth login`, or set your provider's key and name it in pass_environment.",
}
_SESSION_GONE = re.compile(r"no conversation found|no rollout found|session not found|thread not found", re.IGNORECASE)
_LOGIN = re.compile(
    r"not logged in|please run /login|log ?in again|invalid (?:x-)?api[- _]?key|incorrect api key|authenticat|unauthori[sz]ed"
    r"|missing bearer|oauth token (?:has )?expired|no auth credentials|api key is missing"
    r"|no providers? (?:is |are )?(?:configured|available)",
    re.IGNORECASE,
)
_BUSY = re.compile(
    r"rate.?limit|too many requests|overloaded|high demand|usage limit|quota|credit balance|at capacity|out of credits|hit your limit",
    re.IGNORECASE,
)
_UNREACHED = re.compile(
    r"connect|network|econn|enotfound|etimedout|eai_again|fetch failed|socket|timed out|stream disconnected|internal server error"
    r"|bad gateway|service unavailable|gateway timeout|server_error|could not resolve|name does not resolve|stream error",
    re.IGNORECASE,
)
_TOO_LONG = re.compile(r"prompt is too long|context (?:window|length)|context_length|too many tokens|input is too long", re.IGNORECASE)
_TURNS = re.compile(r"max[_ ]turns|maximum (?:number of )?turns|error_max_budget", re.IGNORECASE)
_REFUSAL = re.compile(r"refus|usage policy|content policy|unable to respond to this request|safety", re.IGNORECASE)
_NO_CONNECTION = re.compile(r"conn(?:ection)?[\s_]*refused|refused (?:the |to )?connect\w*", re.IGNORECASE)
"""Refused by a port, not by a model."""
_NO_MODEL = re.compile(r"model[^.]{0,60}(?:not found|does not exist|not exist|not available|not supported)|unknown model", re.IGNORECASE)
_STATUS = re.compile(r"\b(?:status:?|error:?|http)\s*(?:code:?\s*)?([45]\d\d)\b", re.IGNORECASE)

_LOGGED = re.compile(r'error\.(?:error|message)="([^"]+)"')
"""The words in a line of a log."""
_TIMESTAMP = re.compile(r"\btimestamp=(\S+)")


def is_session_gone(words: str) -> bool:
    """It knows no such session: begun in another folder, or cleaned away."""
    return _SESSION_GONE.search(words) is not None


def error_for(vendor: str, message: str, status: int | None = None) -> RemitError:
    words = " ".join(message.split())[:_WORDS_CHARACTERS] or "no word why"
    if status is None and (found := _STATUS.search(words)):
        status = int(found[1])
    if status in (401, 403) or (status is None and _LOGIN.search(words)):
        return Unavailable(f"{vendor} is not logged in, or its key is not accepted: {words}", advice=LOGIN.get(vendor, "Log in once."))
    if _TOO_LONG.search(words) or status == 413:
        return Failed(f"{vendor} ran out of context: {words}", advice="Give it a smaller task, or parts of it one by one.")
    if status in (429, 529) or _BUSY.search(words):
        what = "overloaded" if status == 529 or "overload" in words.lower() else "at its rate or usage limit"
        return Unavailable(f"The model's service of {vendor} is {what}: {words}", advice="Try again later.")
    if status is not None and status >= 500:
        return Unavailable(f"The model's service of {vendor} has an error: {words}", advice="Try again later.")
    if _TURNS.search(words):
        return Failed(f"{vendor} used up its turns: {words}", advice="Resume it (resume=SESSION), or allow it more in its options.")
    if _NO_MODEL.search(words):
        return Failed(f"{vendor} does not have the model it was given: {words}", advice="Name another as its model.")
    if _REFUSAL.search(_NO_CONNECTION.sub("", words)):
        return Failed(f"{vendor} refused: {words}", advice="Word the task differently, or give it to another agent.")
    if status is None and _UNREACHED.search(words):
        return Unavailable(f"{vendor} could not reach its model: {words}", advice="See to the network, or try again later.")
    return Failed(f"{vendor} ended with an error: {words}", advice=f"Run {vendor} by hand in the same folder to see more.")


def last_trouble(stderr: str, heard_at: float | None) -> str:
    """The last line of what it wrote to its standard error that tells of its model's service; empty where none does.

    What is older than the last word that was heard of it (`heard_at`, on the wall clock) is over.
    """
    for line in reversed(stderr.splitlines()):
        if heard_at is not None and _written_at(line) <= heard_at:
            continue
        if _BUSY.search(line) or _UNREACHED.search(line) or _STATUS.search(line) or _LOGIN.search(line):
            logged = _LOGGED.search(line)
            return " ".join((logged[1] if logged else line).split())[:_WORDS_CHARACTERS]
    return ""


def _written_at(line: str) -> float:
    """The time in a line of a log; long ago for one that says none."""
    found = _TIMESTAMP.search(line)
    try:
        return datetime.fromisoformat(found[1]).timestamp() if found else 0.0
    except (ValueError, OverflowError):
        return 0.0


def crash_of(vendor: str, argv0: str, code: int | None, stderr: str, printed: str) -> RemitError:
    """It ended without an answer and without an error in its stream: its last words may still say why."""
    words = f"{stderr}\n{printed}".strip()
    if _LOGIN.search(words) or is_session_gone(words):
        return error_for(vendor, words[-_WORDS_CHARACTERS:])
    how = "ended" if code is None else exit_words(code)
    return AgentCrashed(
        f"{argv0} {how} without an answer.",
        exit_code=code,
        stderr_tail=words[-2000:],
        advice=f"Run {vendor} by hand in the same folder to see more, and delegate it again.",
    )


def missing(vendor: str, program: str, environment: Mapping[str, str]) -> Unavailable:
    install = INSTALL.get(vendor)
    how = f"Install it: {install}. " if install else ""
    return Unavailable(
        f"The program {program} was not found.",
        advice=f'{how}Or name where it is: command = ["/path/to/{program}"]. Looked for in PATH: {environment.get("PATH", "")}.',
    )


# ---- what it says

ITEMS_KEPT = 10_000
"""Messages and steps whose usage may be said again; the oldest are forgotten."""
_NOT_ALLOWED = "nothing in its allow-list fits"
_SESSION = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:-]{0,199}")


def is_session(name: object) -> bool:
    """Whether a vendor's word for a session can be handed back to it as an argument: no option, no path, no odd signs."""
    return isinstance(name, str) and _SESSION.fullmatch(name) is not None


class UsageCounter:
    """Tokens and money of one run, each counted once however often it is said."""

    __slots__ = ("_before", "_cost", "_items", "_tokens")

    def __init__(self, before: int = 0) -> None:
        """`before`: tokens of the session that earlier runs have counted."""
        self._before = before
        self._items: dict[str, tuple[int, float]] = {}
        self._tokens = 0
        self._cost = 0.0

    @property
    def session_tokens(self) -> int:
        return self._before + self._tokens

    def more(self, spent: TokenUse) -> tuple[int, float]:
        """What of it has not been counted yet."""
        match spent.scope:
            case Scope.ITEM:
                tokens, cost = self._items.get(spent.key, (0, 0.0))
                self._items[spent.key] = (max(tokens, spent.tokens), max(cost, spent.cost))
                if len(self._items) > ITEMS_KEPT:
                    del self._items[next(iter(self._items))]
            case Scope.RUN:
                tokens, cost = self._tokens, self._cost
            case Scope.SESSION:
                tokens, cost = self.session_tokens, self._cost
        more = max(0, spent.tokens - tokens), max(0.0, spent.cost - cost)
        self._tokens += more[0]
        self._cost += more[1]
        return more


class Listener:
    def __init__(self, ctx: Context, vendor: str, *, session: str | None, counted: int) -> None:
        self._ctx = ctx
        self._vendor = vendor
        self._account = UsageCounter(counted)
        self._last, self._whole = Tail("\n\n"), Tail("\n\n")
        self._printed = Tail()
        self._tools = ToolCalls(ctx)
        self._words = Words(ctx)
        self._in_trouble = ""
        """What was last heard of a service that does not answer; empty when it has answered since."""
        self._heard_at: float | None = None
        """When it last said something or used a tool, on the wall clock."""
        self._kept: object = None
        self.session = session
        self.ended: str | None = None
        self.over = asyncio.Event()
        """Set when the turn has come to its end, by its own word."""
        self.is_broken = False
        self.trouble: VendorError | None = None

    @property
    def is_over(self) -> bool:
        return self.over.is_set()

    @property
    def printed(self) -> str:
        """What it printed that was none of its stream."""
        return self._printed.text()

    @property
    def last(self) -> str:
        """Its answer: its final word, or what it said last."""
        return self.ended if self.ended else self._last.text()

    @property
    def whole(self) -> str:
        return self._whole.text()

    async def hear(self, heard: VendorEvent) -> None:
        match heard:
            case SessionStarted():
                await self._began(heard.session)
            case TextMessage():
                self._said(heard.text)
            case ToolUse():
                self._used(heard)
            case PlanUpdate():
                tell_plan(self._ctx, heard.steps)
            case TokenUse():
                tokens, cost = self._account.more(heard)
                if tokens or cost:
                    self._ctx.spend(tokens=tokens, cost=cost)
            case Denial():
                self._tools.decide(heard.call_id, kind=heard.tool, title=heard.detail, decision="denied", because=_NOT_ALLOWED)
            case Note():
                self._in_trouble = heard.message if heard.is_trouble else self._in_trouble
                self._ctx.progress(heard.message)
            case TurnEnd():
                self.ended, self.trouble = heard.text, None
                self.over.set()
            case Interruption():
                self.is_broken = True
            case VendorError():
                self.trouble = heard
                self._ctx.progress(f"{self._vendor}: {heard.message}")

    def hear_plain(self, text: str) -> None:
        """A line that is no JSON: perhaps all that this program prints."""
        self._printed.add(text)
        if text.strip():
            self._ctx.emit(text)

    def end(self, *, is_whole: bool, stderr: str = "") -> None:
        """Nothing more comes. `is_whole`: its turn came to its end, so that what it said last is its answer."""
        with contextlib.suppress(Stopped):  # its delegation has ended: nobody hears it any more
            if is_whole:
                self._words.end_turn()
                return
            if self.ended and self.ended != self._last.text():
                self._said(self.ended)  # its final word is no answer any more, but is handed back with what it left
            self._words.end_message()
            self._tell_trouble(self._in_trouble or last_trouble(stderr, self._heard_at))

    def _tell_trouble(self, words: str) -> None:
        """It was stopped while it tried its model again and again: with what it left, that is handed back too."""
        if words and self.trouble is None:
            self._ctx.emit({"trouble": {"vendor": self._vendor, "message": words}})
            if words != self._in_trouble:
                self._ctx.progress(f"{self._vendor}: {words}")

    async def keep(self) -> None:
        """The session's handle, and what of it is counted, for whoever goes on in it. Work does not end because it cannot be kept."""
        kept = {"vendor": self._vendor, "session": self.session, "tokens": self._account.session_tokens}
        if self.session is None or kept == self._kept:
            return
        try:
            await self._ctx.checkpoint(kept)
            self._kept = kept
        except Unavailable as error:
            self._ctx.progress(f"The session {self.session} of {self._vendor} could not be kept: {error.message}")

    async def _began(self, session: str) -> None:
        if not is_session(session) or (session == self.session and self._kept is not None):
            return
        self.session = session
        self._ctx.progress(f"Session {session} of {self._vendor}.")
        await self.keep()

    def _said(self, text: str) -> None:
        if not text.strip():
            return
        self._in_trouble, self._heard_at = "", time.time()
        self._last.add(text)
        self._whole.add(text)
        self._words.end_message()
        self._words.say(text)

    def _used(self, used: ToolUse) -> None:
        self._in_trouble, self._heard_at = "", time.time()
        self._last.clear()  # what it says after a tool is a message of its own
        self._words.end_message()
        if used.status in OVER:
            self._tools.end(used.call_id, used.status, kind=used.tool, title=used.detail, why=used.why)
        else:
            self._tools.begin(used.call_id, kind=used.tool, title=used.detail)


# ---- one run of its program

SETTLE_SECONDS = 2.0
"""For a program that was interrupted, or has said that it is done, to write its session down and end."""
_BREATH = 32
"""After so many lines the loop is given to others: a flood must not hold it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramExit:
    code: int | None
    """Its exit code; None: it was not waited for."""
    stderr: str
    was_interrupted: bool


class Run:
    def __init__(self, dialect: Dialect, ctx: Context, listener: Listener, *, is_told: bool) -> None:
        """`is_told`: whether it is interrupted at the soft deadline."""
        self._dialect = dialect
        self._ctx = ctx
        self._listener = listener
        self._is_told = is_told and not ctx.hand_in
        self._was_interrupted = False

    async def to_the_end(self, pool: ProcessPool, program: Program, prompt: str) -> ProgramExit:
        tasks: list[asyncio.Task[Any]] = []
        code, stderr, is_whole = None, "", False
        spawned: CommandProcess | None = None
        try:
            async with pool.spawn(program, self._ctx) as spawned:
                running = asyncio.create_task(self._listen(spawned))
                tasks = [
                    running,
                    asyncio.create_task(self._run_out(spawned)),
                    asyncio.create_task(feed(spawned, prompt.encode("utf-8", "replace"))),
                ]
                await asyncio.wait(tasks[:2], return_when=asyncio.FIRST_COMPLETED)
                code = running.result() if running.done() else None
                is_whole = self._listener.is_over or (code == 0 and not self._listener.is_broken)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            stderr = spawned.stderr_tail() if spawned is not None else ""
            self._listener.end(is_whole=is_whole, stderr=stderr)
        with contextlib.suppress(Stopped):
            await self._listener.keep()
        return ProgramExit(code=code, stderr=stderr, was_interrupted=self._was_interrupted)

    @property
    def _is_hopeless(self) -> bool:
        return self._listener.trouble is not None and self._listener.trouble.is_hopeless

    async def _listen(self, spawned: CommandProcess) -> int | None:
        """Its exit code, which may come long after its last word; None: it is not worth waiting for."""
        await self._read(spawned.stdout)
        return None if self._is_hopeless else await spawned.wait()

    async def _read(self, stdout: asyncio.StreamReader) -> None:
        """To the end of the stream, not of the turn: a program may say that it is done and have others at work still."""
        lines = 0
        while not self._is_hopeless:
            lines += 1
            if lines % _BREATH == 0:
                await asyncio.sleep(0)
            try:
                line = await stdout.readline()
            except ValueError:
                self._ctx.progress("A line of its stream was too long to be read.")
                continue
            if not line:
                return
            await self._hear(line)

    async def _hear(self, line: bytes) -> None:
        text = line.decode("utf-8", "replace")
        try:
            said = json.loads(text) if text.lstrip().startswith("{") else None
        except (ValueError, RecursionError):
            said = None
        if not isinstance(said, dict) or not isinstance(said.get("type"), str):
            self._listener.hear_plain(text)
            return
        for heard in self._dialect.read(said):
            await self._listener.hear(heard)

    async def _run_out(self, spawned: CommandProcess) -> None:
        """Gives back when it is not to be waited for any longer, which is never before the soft deadline.

        Then its turn is ended, so that it can be asked to hand in. One that has said that it is done, and stays all the same, is left:
        its answer must not be lost with it.
        """
        await self._ctx.wait_hand_in()
        if self._ctx.hand_in and self._is_told and self._may_interrupt():  # a stop, too, ends the wait
            self._ctx.progress("Its time is nearly up: it is interrupted, to hand in what it has.")
            self._was_interrupted = True
            spawned.signal(signal.SIGINT)
            await asyncio.sleep(SETTLE_SECONDS)
            return
        await self._listener.over.wait()
        await asyncio.sleep(min(SETTLE_SECONDS, max(0.0, self._ctx.remaining / 2)))

    def _may_interrupt(self) -> bool:
        """Not where no time is left for one more question, nor where there is no session to ask it in; then it just goes on."""
        is_worth_it = self._ctx.remaining >= self._dialect.hand_in_seconds and self._listener.session is not None
        return is_worth_it and not self._listener.is_over


# ---- the agent

DIALECTS: Mapping[str, Dialect] = {Kind.CLAUDE: Claude(), Kind.CODEX: Codex(), Kind.OPENCODE: OpenCode()}
_ANSWER_SECONDS = 1.0
"""Of what is left, not promised to an agent that is told to hand in."""


class CodingAgent:
    __slots__ = ("_dialect", "_pool", "definition", "spec")

    def __init__(self, definition: Definition, deps: "ExecutorDeps") -> None:
        self.spec: AgentSpec = definition.spec
        self.definition = definition
        self._dialect = DIALECTS[definition.kind]
        self._pool = deps.processes

    def check(self, parameters: dict[str, Any]) -> dict[str, Any]:
        return checked_task(self.spec.name, parameters)

    async def perform(self, ctx: Context, arguments: Mapping[str, Any]) -> str:
        if ctx.hand_in and ctx.remaining < self._dialect.hand_in_seconds:
            await _out_of_time()
        check_own_tools(self.definition)
        set_aside(ctx)  # of its first answer, when it is asked again: it must not be taken for the second
        first = first_prompt(self.definition, ctx, arguments)
        session, counted = _kept_session(ctx.saved, self._dialect.vendor)
        listener, ran = await self._asked(ctx, session_prompt(self.definition, ctx, first, is_known=session is not None), session, counted)
        if session is not None and _has_forgotten(listener, ran):
            ctx.progress(f"{self._dialect.vendor} no longer has the session {session}: it begins a new one.")
            listener, ran = await self._asked(ctx, session_prompt(self.definition, ctx, first, is_known=False), None, 0)
        is_done = listener.is_over or (ran.code == 0 and not listener.is_broken)  # it may have been, at that very moment
        if ran.was_interrupted and not is_done:
            return await self._handed_in(ctx, listener)
        return await self._answer(ctx, listener, ran)

    async def _handed_in(self, ctx: Context, before: Listener) -> str:
        """One more question in the same session. What goes wrong now is the deadline's: it hands back what there is."""
        if before.session is None or ctx.remaining < self._dialect.hand_in_seconds / 2:
            await _out_of_time()
        _, counted = _kept_session(ctx.saved, self._dialect.vendor)
        prompt = hand_in_prompt(ctx, ctx.remaining - _ANSWER_SECONDS, self.spec.output_schema)
        try:
            listener, ran = await self._asked(ctx, prompt, before.session, counted, is_last=True)
            return await self._answer(ctx, listener, ran)
        except Stopped:
            raise
        except RemitError as error:
            ctx.progress(f"It could not hand in: {error.message}")
            return await _out_of_time()

    # ---- one run of the program

    async def _asked(
        self, ctx: Context, prompt: str, session: str | None, counted: int, *, is_last: bool = False
    ) -> tuple[Listener, ProgramExit]:
        listener = Listener(ctx, self._dialect.vendor, session=session, counted=counted)
        run = Run(self._dialect, ctx, listener, is_told=self.definition.hand_in != NO_SIGNAL and not is_last)
        return listener, await run.to_the_end(self._pool, self._program(ctx, session), prompt)

    def _program(self, ctx: Context, session: str | None) -> Program:
        environment = self._environment(ctx)
        turn = Turn(
            definition=self.definition,
            environment=environment,
            folder=folder_of(self.definition, ctx),
            scratch=ctx.scratch,
            delegation_id=ctx.session_id,
            session=session,
        )
        line = self._dialect.command_line(turn)
        program = line.argv[0]
        if "/" not in program and shutil.which(program, path=environment.get("PATH")) is None:
            raise missing(self._dialect.vendor, program, environment)
        whole = {**line.environment, **environment, **line.imposed}
        return Program(argv=line.argv, environment=whole, folder=turn.folder, takes_input=True)

    def _environment(self, ctx: Context) -> dict[str, str]:
        given = environment_for(self.definition, ctx, more_names=self._dialect.variables)
        own = self.definition.environment
        hidden = self._dialect.never_passed
        return {name: value for name, value in given.items() if name in own or not any(fnmatchcase(name, one) for one in hidden)}

    # ---- what comes of it

    async def _answer(self, ctx: Context, listener: Listener, ran: ProgramExit) -> str:
        """Its last message; all it said where that alone holds no return. Raises what its vendor's error means.

        However it ended, a return that was handed in counts, and so does the word that it is done.
        """
        if listener.trouble is not None:
            raise error_for(self._dialect.vendor, listener.trouble.message, listener.trouble.status)
        last = listener.last or listener.printed
        if self.spec.answers is Answers.VALUE:
            answer, is_return = last.strip(), False
        else:
            answer, is_return = await off_loop(_found, last, listener.whole or last, return_file_of(ctx))
        is_done = ran.code == 0 or (ran.code is None and listener.is_over)
        if is_done or is_return:
            return answer
        program = (self.definition.command or (self._dialect.program,))[0]
        raise crash_of(self._dialect.vendor, program, ran.code, ran.stderr, listener.printed)


def _kept_session(saved: Any, vendor: str) -> tuple[str | None, int]:
    """The vendor's session that an earlier run kept, and how many of its tokens are counted."""
    if not isinstance(saved, dict) or saved.get("vendor") != vendor:
        return None, 0
    session, counted = saved.get("session"), saved.get("tokens")
    if not is_session(session):
        return None, 0
    return session, counted if isinstance(counted, int) and counted >= 0 else 0


def _has_forgotten(listener: Listener, ran: ProgramExit) -> bool:
    if listener.whole or ran.was_interrupted:
        return False
    words = listener.trouble.message if listener.trouble is not None else ""
    return is_session_gone(f"{words}\n{ran.stderr}\n{listener.printed}")


def _found(last: str, whole: str, return_file: Path) -> tuple[str, bool]:
    for text, file in ((last, None), (whole, None), (last, return_file)):
        received = read_answer(text, file)
        if received.candidate is not None and looks_like_return(received.candidate):
            return text, True
    return last, False


async def _out_of_time() -> str:
    """Too late to ask: its deadline, which hands back what there is, is near."""
    await asyncio.Event().wait()
    raise AssertionError("nobody sets it")
