"""Built-in roles that do one step: commit named files, move a task's status, number a task, hand a phase to the implementer.

Each takes the board's own locks and rules; the orchestrator's commands take the same steps in program code, so these serve agents that
ask for them. None of them asks a model. The board is imported when one is called: the directory lists all roles.
"""

from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field

from remit.agents.function import FunctionAgent, agent
from remit.board.roles.returns import Words, answered, shorten
from remit.core.errors import ErrorInfo, Misused, Refused
from remit.runtime.context import Context
from remit.system.threads import off_loop

if TYPE_CHECKING:
    from remit.board.task import Status, Task
    from remit.core.settings import Settings

TITLE_LENGTH = 120
IMPLEMENTER = "implementer"


@agent("git-workflow-manager", effects=("write",), acts_on={"paths": "path"})
async def committer(
    ctx: Context,
    paths: Annotated[list[str], Field(min_length=1, description="The files to commit, from the project's root; nothing else is touched.")],
    subject: Annotated[str, Field(min_length=1, description="The first line of the commit's message.")],
    session_id: Annotated[str, Field(description="For its trailer; this delegation's unless given.")] = "",
    task: str = "",
    **more: Any,
) -> dict[str, Any]:
    """Commit named files, and only those."""
    from remit.board.commits import commit

    made = await off_loop(lambda: commit(ctx.root, paths, subject, session_id=session_id or ctx.session_id))
    files = f"{len(paths)} named file{'s' * (len(paths) != 1)}"
    data = {"hash": made.hash, "nothing": made.nothing, "warning": made.warning}
    if made.warning:
        advice = "Commit them by hand."
        error = ErrorInfo(type="git", message=made.warning, code="GIT_COMMIT_FAILED", recoverable=True, recommendation=advice)
        return answered("failed", f"{files.capitalize()} could not be committed. {made.warning}", errors=[error], data=data)
    if made.nothing:
        return answered("completed", f"There was nothing to commit of {files}. Nothing was changed.", data=data)
    return answered("completed", f"Committed {files} as {made.hash[:9]}. Whatever else was changed or staged is as it was.", data=data)


@agent("status-sync-manager", effects=("write",))
async def status_keeper(
    ctx: Context,
    number: Annotated[int, Field(ge=1, description="The task.")],
    status: Annotated[str, Field(min_length=1, description="What it becomes: researched, PLANNED, [BLOCKED], …")],
    reason: Annotated[str, Field(description="For blocked and abandoned.")] = "",
    task: str = "",
    **more: Any,
) -> dict[str, Any]:
    """Move a task of the board to another status, by the rules of the board; state.json and TODO.md are written as one."""
    from remit.board.board import Board
    from remit.board.task import Status, check_move, status_of

    new = status_of(status)

    def move() -> "Status":
        board = Board(ctx.root)
        with board.change(f"Task {number} is {new.marker}") as draft:
            found = draft.state.task(number)
            try:
                check_move(number, found.status, new, reason=reason)
            except Refused as no:  # nobody who delegates can force it, so that is not what they are advised
                raise Refused(no.message, code=no.code, advice="Move it by one of these, or ask a person.") from None
            if new is Status.NOT_STARTED:
                raise Misused(f"Task {number} is recovered by a person alone.", advice=f"remit task --recover {number}")
            draft.state = draft.state.with_task(found.moved(new, at=draft.at, reason=reason))
            return found.status

    old = await off_loop(move)
    words = f"Task {number} was [{old.marker}] and is [{new.marker}] now. state.json and TODO.md say the same."
    return answered("completed", words, data={"number": number, "before": str(old), "status": str(new)})


@agent("atomic-task-numberer", effects=("write",))
async def numberer(
    ctx: Context,
    task: Annotated[str, Field(description="What is to be done, in words: it becomes the description, and is not carried out.")] = "",
    title: Annotated[str, Field(description="Of the task; the first sentence of what is to be done unless given.")] = "",
    description: str = "",
    priority: str = "medium",
    language: str | None = None,
    effort: str = "",
    **more: Any,
) -> dict[str, Any]:
    """Record a new task on the board under the next free number; it is recorded and nothing else."""
    from remit.board.board import Board
    from remit.board.task import Priority, Task, slug_of

    words = (description or task).strip()
    name = shorten(title.strip() or _first_sentence(words), TITLE_LENGTH)
    if not name:
        raise Misused("A task needs a title or a description.", code="INVALID_PARAMETERS", advice='Say what is to be done: task="…".')
    try:
        level = Priority(priority.strip().lower())
    except ValueError:
        known = ", ".join(Priority)
        raise Misused(f"There is no priority {priority!r}.", code="INVALID_PARAMETERS", advice=f"Use one of {known}.") from None

    def record() -> "Task":
        with Board(ctx.root).change(f"Task created: {name}", make=True) as draft:
            new = Task(
                number=draft.state.next_number,
                title=name,
                slug=slug_of(name),
                priority=level,
                language=language,
                description=words or name,
                effort=effort,
                created=draft.at,
                last_updated=draft.at,
            )
            draft.state = draft.state.with_task(new)
            return new

    made = await off_loop(record)
    said = f"Task {made.number} is recorded: {made.title.rstrip('.')}. Nothing of it was carried out."
    return answered(
        "completed", said, data={"number": made.number, "title": made.title, "status": str(made.status)}, task_number=made.number
    )


def _first_sentence(text: str) -> str:
    flat = " ".join(text.split())
    end = min((place for mark in (". ", "? ", "! ") if (place := flat.find(mark)) > 0), default=len(flat))
    return flat[: end + 1].rstrip(". ")


COMMITTER: FunctionAgent = committer
STATUS_KEEPER: FunctionAgent = status_keeper
NUMBERER: FunctionAgent = numberer


def task_executor(settings: "Settings") -> FunctionAgent:
    """The agent that hands one phase of a plan to the role `implementer` and returns its answer. It writes nothing itself."""
    longest = settings.limits_for(IMPLEMENTER).maximum_seconds

    @agent("task-executor", effects=("read", "write"))
    async def execute(ctx: Context, task: Words, **more: Any) -> dict[str, Any]:
        """Have the implementer carry out one phase of a plan."""
        ctx.progress("Handed to the implementer")
        # All the time there is: the implementer's default may be less than what this phase was given.
        returned = await ctx.delegate(IMPLEMENTER, parameters=dict(ctx.parameters), timeout=min(max(1.0, ctx.remaining), longest))
        return returned.forwarded()

    return execute
