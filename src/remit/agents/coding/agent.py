"""A coding agent of the command line as an agent: asked in words, in a session of its own that can be gone on in.

Says what is asked and what counts as the answer; `turn` runs the program, a dialect speaks the vendor's language. Made by
`agents.carriers` of a definition of kind `claude`, `codex` or `opencode`. Judging the answer and asking again is the flow's.
"""

import asyncio
import shutil
from collections.abc import Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from remit.agents.coding import faults
from remit.agents.coding.claude import Claude
from remit.agents.coding.codex import Codex
from remit.agents.coding.dialect import Dialect, Turn
from remit.agents.coding.hearing import Hearing, is_session
from remit.agents.coding.opencode import OpenCode
from remit.agents.coding.turn import Ran, Run
from remit.agents.command.arguments import folder_of, set_aside
from remit.agents.command.environment import environment_for, return_file_of
from remit.agents.definition import NO_SIGNAL, Definition, Kind, checked_task
from remit.agents.own_tools import check_own_tools
from remit.agents.process.pool import ProcessPool
from remit.agents.process.program import Program
from remit.agents.prompt import first_prompt, hand_in_prompt, repair_prompt
from remit.core.agents import AgentSpec, Answers
from remit.core.errors import RemitError, Stopped
from remit.flow.context import Context
from remit.flow.receive import looks_like_return, read_answer
from remit.system.threads import off_loop

DIALECTS: Mapping[Kind, Dialect] = {Kind.CLAUDE: Claude(), Kind.CODEX: Codex(), Kind.OPENCODE: OpenCode()}
_GOING_ON = "You were interrupted in this session. Go on where you stopped: what is done need not be done again.\n\n"
_ANSWER_SECONDS = 1.0
"""Of what is left, not promised to an agent that is told to hand in."""


class CodingAgent:
    __slots__ = ("_dialect", "_pool", "definition", "spec")

    def __init__(self, definition: Definition, pool: ProcessPool) -> None:
        self.spec: AgentSpec = definition.spec
        self.definition = definition
        self._dialect = DIALECTS[definition.kind]
        self._pool = pool

    def check(self, parameters: dict[str, Any]) -> dict[str, Any]:
        return checked_task(self.spec.name, parameters)

    async def perform(self, ctx: Context, arguments: Mapping[str, Any]) -> str:
        if ctx.hand_in and ctx.remaining < self._dialect.hand_in_seconds:
            await _out_of_time()
        check_own_tools(self.definition)
        set_aside(ctx)  # of its first answer, when it is asked again: it must not be taken for the second
        first = first_prompt(self.definition, ctx, arguments)
        session, counted = _kept_session(ctx.saved, self._dialect.vendor)
        hearing, ran = await self._asked(ctx, self._question(ctx, first, is_known=session is not None), session, counted)
        if session is not None and _has_forgotten(hearing, ran):
            ctx.progress(f"{self._dialect.vendor} no longer has the session {session}: it begins a new one.")
            hearing, ran = await self._asked(ctx, self._question(ctx, first, is_known=False), None, 0)
        is_done = hearing.is_over or (ran.code == 0 and not hearing.is_broken)  # it may have been, at that very moment
        if ran.was_interrupted and not is_done:
            return await self._handed_in(ctx, hearing)
        return await self._answer(ctx, hearing, ran)

    async def _handed_in(self, ctx: Context, before: Hearing) -> str:
        """One more question in the same session. What goes wrong now is the deadline's: it hands back what there is (S2.6)."""
        if before.session is None or ctx.remaining < self._dialect.hand_in_seconds / 2:
            await _out_of_time()
        _, counted = _kept_session(ctx.saved, self._dialect.vendor)
        prompt = hand_in_prompt(ctx, ctx.remaining - _ANSWER_SECONDS, self.spec.output_schema)
        try:
            hearing, ran = await self._asked(ctx, prompt, before.session, counted, is_last=True)
            return await self._answer(ctx, hearing, ran)
        except Stopped:
            raise
        except RemitError as error:
            ctx.progress(f"It could not hand in: {error.message}")
            return await _out_of_time()

    # ---- one run of the program

    async def _asked(self, ctx: Context, prompt: str, session: str | None, counted: int, *, is_last: bool = False) -> tuple[Hearing, Ran]:
        hearing = Hearing(ctx, self._dialect.vendor, session=session, counted=counted)
        run = Run(self._dialect, ctx, hearing, is_told=self.definition.hand_in != NO_SIGNAL and not is_last)
        return hearing, await run.to_the_end(self._pool, self._program(ctx, session), prompt)

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
            raise faults.missing(self._dialect.vendor, program, environment)
        whole = {**line.environment, **environment, **line.imposed}
        return Program(argv=line.argv, environment=whole, folder=turn.folder, takes_input=True)

    def _environment(self, ctx: Context) -> dict[str, str]:
        given = environment_for(self.definition, ctx, more_names=self._dialect.variables)
        own = self.definition.environment
        hidden = self._dialect.never_passed
        return {name: value for name, value in given.items() if name in own or not any(fnmatchcase(name, one) for one in hidden)}

    # ---- what comes of it

    async def _answer(self, ctx: Context, hearing: Hearing, ran: Ran) -> str:
        """Its last message; all it said where that alone holds no return. Raises what its vendor's error means.

        However it ended, a return that was handed in counts, and so does the word that it is done.
        """
        if hearing.trouble is not None:
            raise faults.error_for(self._dialect.vendor, hearing.trouble.message, hearing.trouble.status)
        last = hearing.last or hearing.printed
        if self.spec.answers is Answers.VALUE:
            answer, is_return = last.strip(), False
        else:
            answer, is_return = await off_loop(_found, last, hearing.whole or last, return_file_of(ctx))
        is_done = ran.code == 0 or (ran.code is None and hearing.is_over)
        if is_done or is_return:
            return answer
        program = (self.definition.command or (self._dialect.program,))[0]
        raise faults.crash_of(self._dialect.vendor, program, ran.code, ran.stderr, hearing.printed)

    def _question(self, ctx: Context, first: str, *, is_known: bool) -> str:
        if ctx.repair is not None:
            return repair_prompt(ctx, in_session=is_known, first=first, output_schema=self.spec.output_schema)
        return _GOING_ON + first if is_known else first


def _kept_session(saved: Any, vendor: str) -> tuple[str | None, int]:
    """The vendor's session that an earlier run kept, and how many of its tokens are counted."""
    if not isinstance(saved, dict) or saved.get("vendor") != vendor:
        return None, 0
    session, counted = saved.get("session"), saved.get("tokens")
    if not is_session(session):
        return None, 0
    return session, counted if isinstance(counted, int) and counted >= 0 else 0


def _has_forgotten(hearing: Hearing, ran: Ran) -> bool:
    if hearing.whole or ran.was_interrupted:
        return False
    words = hearing.trouble.message if hearing.trouble is not None else ""
    return faults.is_session_gone(f"{words}\n{ran.stderr}\n{hearing.printed}")


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
