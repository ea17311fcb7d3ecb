"""Any command as an agent: it is given its prompt, what it prints is streamed on, and its output or return file is its answer.

It is killed whole by the pool when its delegation ends, whatever it does. Reading the answer as a return, judging it and asking once
more is the flow's work. What a command is told and where it stands: `arguments` and `environment`.
"""

import asyncio
import contextlib
import signal
from typing import Any

from remit.agents.command.arguments import Prepared, prepared, set_aside
from remit.agents.command.environment import return_file_of
from remit.agents.command.output import KEPT_BYTES, Output
from remit.agents.definition import NO_SIGNAL, Definition, checked_parameters
from remit.agents.process.pool import ProcessPool
from remit.agents.process.spawned import Spawned
from remit.agents.prompt import first_prompt, repair_prompt
from remit.core.agents import Answers
from remit.core.errors import AgentCrashed, OutOfTime, Stopped
from remit.flow.context import Context
from remit.flow.receive import looks_like_return, read_answer
from remit.system.threads import off_loop

_LAST_WORDS_SECONDS = 0.05


class CommandAgent:
    """Carries out a definition of kind `command`."""

    __slots__ = ("_definition", "_pool", "spec")

    def __init__(self, definition: Definition, pool: ProcessPool) -> None:
        self._definition = definition
        self._pool = pool
        self.spec = definition.spec

    def check(self, parameters: dict[str, Any]) -> dict[str, Any]:
        return checked_parameters(self.spec, parameters)

    async def perform(self, ctx: Context, arguments: dict[str, Any]) -> str:
        if ctx.repair is not None and ctx.hand_in:
            raise _out_of_time(self._definition, "handed in no valid return when it was told to, and there is no time to ask again")
        prompt = first_prompt(self._definition, ctx, arguments)
        if ctx.repair is not None:
            prompt = repair_prompt(ctx, in_session=False, first=prompt, output_schema=self.spec.output_schema)
        set_aside(ctx)
        run = _Run(self._definition, ctx)
        code = await run.to_the_end(self._pool, prepared(self._definition, ctx, arguments, prompt))
        return await run.answer(code)


class _Run:
    """One run of the command, from its start to its answer."""

    __slots__ = ("_ctx", "_definition", "_is_told", "_output", "_stderr")

    def __init__(self, definition: Definition, ctx: Context) -> None:
        self._definition = definition
        self._ctx = ctx
        self._output = Output(self._emit)
        self._is_told = False
        self._stderr = ""

    async def to_the_end(self, pool: ProcessPool, start: Prepared) -> int:
        """Its exit code."""
        tasks: list[asyncio.Task[None]] = []
        try:
            async with pool.spawn(start.program, self._ctx) as spawned:
                reading = asyncio.create_task(self._output.read(spawned.stdout))
                tasks += [reading, asyncio.create_task(self._tell(spawned))]
                if start.input is not None:
                    tasks.append(asyncio.create_task(_feed(spawned, start.input)))
                await asyncio.shield(reading)
                code = await spawned.wait()
                self._stderr = spawned.stderr_tail()
                return code
        finally:
            await self._close(tasks)

    async def _close(self, tasks: "list[asyncio.Task[None]]") -> None:
        """Its last words, printed while it was being stopped, are heard too."""
        if tasks and not tasks[0].done():
            await asyncio.wait(tasks[:1], timeout=_LAST_WORDS_SECONDS)
        for task in tasks:
            task.cancel()
        self._output.flush()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _emit(self, text: str) -> None:
        with contextlib.suppress(Stopped):  # its delegation has ended; what is printed now is heard by nobody
            self._ctx.emit(text)

    async def _tell(self, spawned: Spawned) -> None:
        """The soft deadline (S2.4): a signal, to a program that has an ear for it. To any other it would be the end."""
        name = self._definition.hand_in
        if name == NO_SIGNAL:
            return
        await self._ctx.wait_hand_in()
        number = signal.Signals[name]
        if self._ctx.hand_in and spawned.catches(number) and spawned.signal(number):
            self._is_told = True
            self._ctx.progress(f"Soft deadline: {self._definition.name} was sent {name}, to hand in what it has.")

    async def answer(self, code: int) -> str:
        """What it printed. Raises when it failed, or ended when told to without handing anything in."""
        text = await off_loop(self._output.text) if self._output.count > 1 << 16 else self._output.text()
        if self._output.is_cut:
            self._ctx.progress(f"{self._definition.name} printed {self._output.count:,} bytes; the last {KEPT_BYTES:,} are kept.")
        if self._definition.spec.answers is Answers.VALUE:
            text = text.strip()
        if code == 0 and not self._is_told:
            return text
        if self._definition.spec.answers is Answers.RETURN:
            received = await off_loop(read_answer, text, return_file_of(self._ctx))
            if received.candidate is not None and looks_like_return(received.candidate):
                if code != 0:
                    self._ctx.progress(f"{self._definition.name} handed in a return, and {_exit_words(code)}.")
                return text
        if self._is_told:
            raise _out_of_time(self._definition, "ended when it was told to hand in, without a return")
        raise AgentCrashed(
            f"{self._definition.command[0]} {_exit_words(code)}.",
            exit_code=code,
            stderr_tail=self._stderr or text[-2000:],
            advice=f"Run it by hand in the same folder, see what {self._definition.name} declares, and delegate it again.",
        )


async def _feed(spawned: Spawned, prompt: bytes) -> None:
    """A program that does not read its input, or not all of it, is none the worse for it."""
    stdin = spawned.stdin
    assert stdin is not None
    with contextlib.suppress(OSError):
        stdin.write(prompt)
        await stdin.drain()
        stdin.close()
        await stdin.wait_closed()


def _out_of_time(definition: Definition, what: str) -> OutOfTime:
    return OutOfTime(f"{definition.name} {what}.", advice="Give it a longer timeout.")


def _exit_words(code: int) -> str:
    if code >= 0:
        return f"ended with exit code {code}"
    with contextlib.suppress(ValueError):
        return f"was killed by signal {-code} ({signal.Signals(-code).name})"
    return f"was killed by signal {-code}"
