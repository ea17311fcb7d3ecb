"""Commands as agents: the program, its environment and prompt, and its output.

Shared with `agents.coding` and `agents.acp`: `environment_for`, `programs_of`, `folder_of`, `set_aside`, `feed`, `out_of_time`,
`session_prompt`. The process pool kills a command with all its descendants when its delegation ends."""

import asyncio
import codecs
import contextlib
import importlib.util
import signal
from collections.abc import Callable, Iterable, Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from remit.agents.definition import NO_SIGNAL, Definition, PromptBy, checked_parameters
from remit.agents.placeholders import filled, places_in
from remit.agents.process.command_process import CommandProcess, Program, ProgramStarter
from remit.agents.prompt import first_prompt, repair_prompt
from remit.agents.transcript import LIMIT_CHARACTERS, PIECE_CHARACTERS, Tail, TextBuffer, pieces
from remit.core.agents import Answers
from remit.core.context import GIVEN, Context
from remit.core.errors import AgentCrashed, Misused, OutOfTime, Refused, Stopped, Unavailable
from remit.runtime.receive import looks_like_return, read_answer
from remit.system.files import private_folder, write_private
from remit.system.interpreter import BASIC, listed_environment
from remit.system.threads import off_loop
from remit.system.trust import ADVICE, CODE, references_of

if TYPE_CHECKING:
    from remit.agents.executors import ExecutorDeps
    from remit.agents.process.pool import ProcessPool
    from remit.system.trust import ProjectTrust

# ---- the MCP server of remit for an agent that may delegate


def check_own_tools(definition: Definition) -> None:
    """Raise `Unavailable` if it should delegate but cannot: without its tools it would silently do something else."""
    if definition.delegates and importlib.util.find_spec("mcp") is None:
        raise Unavailable(
            f"{definition.name} cannot be given the tools to delegate with: delegates = true needs pip install 'remit[mcp]'.",
            advice="pip install 'remit[mcp]' where remit is installed, or take delegates = true out of its definition.",
        )


# ---- environment

RETURN_FILE = "return.json"


def environment_for(definition: Definition, ctx: Context, *, more_names: Iterable[str] = ()) -> dict[str, str]:
    """The whole environment of a command for this delegation.

    Only this function sets remit's own variables, regardless of the definition and of the inherited environment. `more_names`: variables
    (or patterns) that an adapter knows its program needs."""
    return {
        **listed_environment((*BASIC, *definition.pass_environment, *more_names)),
        **definition.environment,
        **ctx.environment(),
        **_remit_variables(ctx),
    }


def without_variables(environment: Mapping[str, str], hidden: Iterable[str], definition: Definition) -> dict[str, str]:
    """Without the variables that match `hidden`, unless the definition sets them."""
    patterns, own = tuple(hidden), definition.environment
    return {name: value for name, value in environment.items() if name in own or not any(fnmatchcase(name, one) for one in patterns)}


class StarterDeps(Protocol):
    @property
    def processes(self) -> "ProcessPool": ...
    @property
    def root(self) -> Path: ...


def programs_of(definition: Definition, deps: StarterDeps) -> ProgramStarter:
    """Starts the programs of this agent: contained or not."""
    if not definition.contain:
        return deps.processes
    from remit.agents.containment.container import Container

    return Container(definition, deps.processes, deps.root)


def return_file_of(ctx: Context) -> Path:
    """Where it may write its return."""
    return ctx.scratch / RETURN_FILE


def _remit_variables(ctx: Context) -> dict[str, str]:
    deadline = ctx.backend.delegation.deadline  # Python agents are not asked for their result
    return {
        "REMIT_SCRATCH": str(ctx.scratch),
        "REMIT_RETURN_FILE": str(return_file_of(ctx)),
        "REMIT_DEADLINE": f"{ctx.deadline:.3f}",
        "REMIT_SOFT_DEADLINE": f"{ctx.deadline - (deadline.hard_at - deadline.soft_at):.3f}",
    }


# ---- what is started


def prepare_program(definition: Definition, ctx: Context, parameters: Mapping[str, Any], prompt: str) -> tuple[Program, bytes | None]:
    """The program with the parameters and remit's own values filled in, and its standard input.

    Raises `Misused` for a folder outside the workspace, `Unavailable` if the prompt cannot be written."""
    held = prompt.encode("utf-8", "replace")
    environment = environment_for(definition, ctx)
    places = set(places_in(definition.command))
    by_argument = "prompt" in places or definition.prompt is PromptBy.ARGUMENT
    values = {
        **parameters,
        "prompt": held.decode().removesuffix("\n"),
        "session_id": ctx.session_id,
        "scratch": environment["REMIT_SCRATCH"],
        "return_file": environment["REMIT_RETURN_FILE"],
        "workspace": str(ctx.workspace),
    }
    if "prompt_file" in places or definition.prompt is PromptBy.FILE:
        values["prompt_file"] = environment["REMIT_PROMPT_FILE"] = str(_write_prompt(ctx, held))
    argv = filled(definition.command, values)
    if by_argument and "prompt" not in places:
        argv.append(values["prompt"])
    is_input = definition.prompt is PromptBy.STDIN and not places & {"prompt", "prompt_file"}
    program = Program(argv=tuple(argv), environment=environment, folder=folder_of(definition, ctx), takes_input=is_input)
    return program, held if is_input else None


def folder_of(definition: Definition, ctx: Context) -> Path:
    """Its working folder. Raises `Misused` for a folder outside the workspace."""
    workspace = ctx.workspace
    folder = workspace / definition.folder
    if definition.folder != "." and not folder.resolve().is_relative_to(workspace.resolve()):
        raise Misused(
            f"The folder of {definition.name}, {definition.folder}, is not inside its workspace {workspace}.",
            advice="Name a folder below the project's root.",
        )
    return folder


def set_aside(ctx: Context) -> None:
    """Move the return file of an earlier run away, so that it is not mistaken for this one's."""
    path = return_file_of(ctx)
    try:
        path.replace(path.with_name("return-before.json"))
    except FileNotFoundError:
        pass
    except OSError as error:
        raise Unavailable(f"{path} of an earlier run cannot be moved: {error.strerror}.", advice="Check the disk and try again.") from None


def _write_prompt(ctx: Context, prompt: bytes) -> Path:
    path = ctx.scratch / GIVEN / "prompt.md"
    try:
        private_folder(path.parent)  # an earlier turn may have created a link there
        write_private(path, prompt, fsync=False)
    except OSError as error:
        raise Unavailable(f"The prompt could not be written to {path}: {error.strerror}.", advice="Check the disk and try again.") from None
    return path


# ---- output

PAUSE_SECONDS = 0.1
"""Minimum time between two chunks, unless there is much output: a program that prints single characters emits ten events a second, not
thousands."""
_READ = 256 * 1024


class Output:
    """The output of a program: streamed, and its end kept."""

    def __init__(self, emit: Callable[[str], None]) -> None:
        self._emit = emit
        self._buffer = TextBuffer(self._emit_pieces, characters=PIECE_CHARACTERS, seconds=PAUSE_SECONDS)
        self._tail = Tail()
        self.count = 0
        """Total bytes."""

    async def read(self, stdout: asyncio.StreamReader) -> None:
        """To the end of the stream."""
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        while data := await stdout.read(_READ):
            self.count += len(data)
            self._add(decoder.decode(data))
        self._add(decoder.decode(b"", final=True))
        self.flush()

    def _add(self, text: str) -> None:
        self._tail.add(text)
        self._buffer.add(text)

    def text(self) -> str:
        """Its output, whole or the end of it."""
        return self._tail.text()

    def flush(self) -> None:
        self._buffer.flush()

    def _emit_pieces(self, text: str) -> None:
        for piece in pieces(text):
            self._emit(piece)


# ---- the agent

_LAST_WORDS_SECONDS = 0.05
_RESUMED = "You were interrupted in this session. Continue where you stopped: do not repeat finished work.\n\n"


def approved_files(definition: Definition, root: Path, trust: "ProjectTrust | None") -> dict[str, str]:
    """Project files that a command names, with their digests; empty if they need no approval."""
    is_free = definition.contain is True or trust is None or trust.approved is None
    return {} if is_free else references_of(definition.command, root, (definition.folder,))


class CommandAgent:
    """Executes a definition of kind `command`."""

    __slots__ = ("_definition", "_files", "_pool", "_root", "spec")

    def __init__(self, definition: Definition, deps: "ExecutorDeps") -> None:
        self._definition = definition
        self._root = deps.root
        self._files = approved_files(definition, deps.root, deps.trust)
        """Approved project files that the command names: content that an agent writes meanwhile is not run."""
        self._pool = programs_of(definition, deps)
        self.spec = definition.spec

    def check(self, parameters: dict[str, Any]) -> dict[str, Any]:
        return checked_parameters(self.spec, parameters)

    async def perform(self, ctx: Context, arguments: dict[str, Any]) -> str:
        if ctx.repair is not None and ctx.hand_in:
            raise out_of_time(self._definition, "gave no valid return when it was asked for one, and there is no time to ask again")
        if self._files and await off_loop(references_of, self._files, self._root) != self._files:
            fault = f"A file that {self.spec.name} runs changed since the project was opened: {', '.join(self._files)}."
            raise Refused(fault, code=CODE, advice=f"{ADVICE}; then open the project again.")
        prompt = first_prompt(self._definition, ctx, arguments)
        if ctx.repair is not None:
            prompt = repair_prompt(ctx, in_session=False, first=prompt, output_schema=self.spec.output_schema)
        set_aside(ctx)
        run = _Run(self._definition, ctx)
        code = await run.to_the_end(self._pool, *prepare_program(self._definition, ctx, arguments, prompt))
        return await run.answer(code)


class _Run:
    """One run of the command, from its start to its answer."""

    __slots__ = ("_ctx", "_definition", "_is_signalled", "_output", "_stderr")

    def __init__(self, definition: Definition, ctx: Context) -> None:
        self._definition = definition
        self._ctx = ctx
        self._output = Output(self._emit)
        self._is_signalled = False
        self._stderr = ""

    async def to_the_end(self, pool: ProgramStarter, program: Program, stdin: bytes | None) -> int:
        """Run it and return its exit code."""
        tasks: list[asyncio.Task[None]] = []
        try:
            async with pool.spawn(program, self._ctx) as spawned:
                reading = asyncio.create_task(self._output.read(spawned.stdout))
                tasks += [reading, asyncio.create_task(self._signal_soft_deadline(spawned))]
                if stdin is not None:
                    tasks.append(asyncio.create_task(feed(spawned, stdin)))
                await asyncio.shield(reading)
                code = await spawned.wait()
                self._stderr = spawned.stderr_tail()
                return code
        finally:
            await self._close(tasks)

    async def _close(self, tasks: "list[asyncio.Task[None]]") -> None:
        """Also reads output printed during the stop."""
        if tasks and not tasks[0].done():
            await asyncio.wait(tasks[:1], timeout=_LAST_WORDS_SECONDS)
        for task in tasks:
            task.cancel()
        self._output.flush()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _emit(self, text: str) -> None:
        with contextlib.suppress(Stopped):  # its delegation has ended, so later output is dropped
            self._ctx.emit(text)

    async def _signal_soft_deadline(self, spawned: CommandProcess) -> None:
        """The soft deadline: send a signal to a program that handles it. Any other program would be killed by it."""
        name = self._definition.hand_in
        if name == NO_SIGNAL:
            return
        await self._ctx.wait_hand_in()
        number = signal.Signals[name]
        if self._ctx.hand_in and spawned.catches(number) and spawned.signal(number):
            self._is_signalled = True
            self._ctx.progress(f"Soft deadline: sent {name} to {self._definition.name}, so that it returns its result so far.")

    async def answer(self, code: int) -> str:
        """Its output. Raises if it failed, or ended on request without a result."""
        text = await off_loop(self._output.text) if self._output.count > 1 << 16 else self._output.text()
        if len(text) == LIMIT_CHARACTERS:
            self._ctx.progress(f"{self._definition.name} printed {self._output.count:,} bytes; the last {LIMIT_CHARACTERS:,} are kept.")
        if self._definition.spec.answers is Answers.VALUE:
            text = text.strip()
        if code == 0 and not self._is_signalled:
            return text
        if self._definition.spec.answers is Answers.RETURN:
            received = await off_loop(read_answer, text, return_file_of(self._ctx))
            if received.candidate is not None and looks_like_return(received.candidate):
                if code != 0:
                    self._ctx.progress(f"{self._definition.name} gave a return, but {exit_words(code)}.")
                return text
        if self._is_signalled:
            raise out_of_time(self._definition, "ended without a return when it was asked for its result")
        raise AgentCrashed(
            f"{self._definition.command[0]} {exit_words(code)}.",
            exit_code=code,
            stderr_tail=self._stderr or text[-2000:],
            advice=f"Run it by hand in the same folder, see what {self._definition.name} declares, and delegate it again.",
        )


async def feed(spawned: CommandProcess, prompt: bytes) -> None:
    """Write the prompt to its standard input. A program need not read all of it."""
    stdin = spawned.stdin
    assert stdin is not None
    with contextlib.suppress(OSError):
        stdin.write(prompt)
        await stdin.drain()
        stdin.close()
        await stdin.wait_closed()


def out_of_time(definition: Definition, what: str) -> OutOfTime:
    return OutOfTime(f"{definition.name} {what}.", advice="Give it a longer timeout.")


def session_prompt(definition: Definition, ctx: Context, first: str, *, is_known: bool) -> str:
    """The prompt of a turn in a coding agent's session. `is_known`: an earlier session, which knows the task."""
    if ctx.repair is not None:
        return repair_prompt(ctx, in_session=is_known, first=first, output_schema=definition.spec.output_schema)
    return _RESUMED + first if is_known else first


def exit_words(code: int) -> str:
    if code >= 0:
        return f"ended with exit code {code}"
    with contextlib.suppress(ValueError):
        return f"was killed by signal {-code} ({signal.Signals(-code).name})"
    return f"was killed by signal {-code}"
