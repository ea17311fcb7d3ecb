"""The prompt of an agent that takes text: its role, the task, the context, and the form of the answer.

Text only. Shared by commands, coding agents and models; it ends with the format instruction. A plain program (a command whose output is the
result itself) gets only its instructions and its task."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from remit.agents.definition import Definition, Kind
from remit.agents.placeholders import parameters_in
from remit.core.agents import Answers
from remit.core.context import Context
from remit.core.text import list_some
from remit.runtime.return_format import format_instruction, repair_instruction, value_instruction

_OURS = frozenset({"complexity", "context", "route", "has_plan", "commit_message"})
"""Keys of a task's context for the record, not for the agent."""
_AGENTS_NAMED = 40
_SHORT = 200
"""Parameters up to this length are listed even if the task repeats them: instructions refer to parameters by name."""
_DELEGATING = """\
## Delegating

You have the tools of remit: `list_agents` says who there is, `delegate` hands work to one of them and gives back its checked return.
A refused delegation is final: do that part yourself.
"""
_DELEGATING_MODEL = """\
## Delegating

You act only by delegating: your one tool is `delegate`, which hands work to an agent and gives back its result. You may delegate to
{agents}. Several calls in one turn are carried out at once. Paths are relative to the project root. Of a long result you are shown a part,
and how to read the rest. A refused call is final: do not repeat it, find another way.
"""
_ALONE = """\
## Delegating

You have no tools: answer from the text below.
"""
_GOING_ON = "You were interrupted. Go on where you stopped: what is done need not be done again."


def first_prompt(definition: Definition, ctx: Context, parameters: Mapping[str, Any]) -> str:
    """The first prompt."""
    if definition.kind is Kind.COMMAND and definition.spec.answers is Answers.VALUE:
        return _plain(definition, parameters)
    delegating = _DELEGATING if definition.delegates else ""
    stable = (_instructions(definition), delegating, _background(ctx))  # first, so that providers can cache it
    return _join_parts(*stable, _task(ctx, parameters), _limits(ctx), _answer_format(ctx, definition))


def model_prompt(definition: Definition, ctx: Context, parameters: Mapping[str, Any], agents: Sequence[str]) -> str:
    """The first prompt of a model; its instructions are its system prompt. `agents`: names of those it may delegate to."""
    limits = f"## Limits\n\nYou are stopped in {max(0.0, ctx.remaining):.0f} seconds, whatever you do."
    delegating = _DELEGATING_MODEL.format(agents=list_some(agents, _AGENTS_NAMED)) if agents else _ALONE
    return _join_parts(delegating, _background(ctx), _task(ctx, parameters), limits, _answer_format(ctx, definition))


def system_prompt(definition: Definition) -> str:
    """The instructions of its file, or a default."""
    name, does = definition.name, " ".join(definition.spec.description.split())
    return definition.instructions.strip() or f"You are the agent {name}.{f' {does}' if does else ''}"


def going_on_prompt(ctx: Context, definition: Definition) -> str:
    """The prompt of a model that continues the conversation of an earlier delegation, with its new session id."""
    return _join_parts(_GOING_ON, _answer_format(ctx, definition))


def closing_prompt(ctx: Context, definition: Definition, why: str) -> str:
    """The prompt of a model that may make no more calls: its time is nearly up, or it used all its requests."""
    if definition.spec.answers is not Answers.RETURN:
        return f"{why} You can make no more calls: answer now, with what you have."
    now = "You can make no more calls. Return your result so far; status partial unless all is done, and name in errors what is missing."
    return _join_parts(f"{why} {now}", _answer_format(ctx, definition))


def repair_prompt(ctx: Context, *, in_session: bool, first: str = "", output_schema: Mapping[str, Any] | None = None) -> str:
    """The repair prompt. An agent without memory gets everything again."""
    assert ctx.repair is not None
    again = f"{repair_instruction(ctx.repair.faults)}\n{_how_to_answer(ctx, output_schema)}"
    if in_session:
        return again
    return f"{first}\n## Your earlier answer\n\n{ctx.repair.original}\n\n## What was wrong with it\n\n{again}"


def hand_in_prompt(ctx: Context, seconds: float, output_schema: Mapping[str, Any] | None = None) -> str:
    """The prompt at the soft deadline."""
    return (
        f"Time is nearly up: {seconds:.0f} seconds are left. Stop working now and start nothing new. Return your result so far; "
        f"status partial unless all is done, and name in errors what is missing.\n\n{_how_to_answer(ctx, output_schema)}"
    )


def _how_to_answer(ctx: Context, output_schema: Mapping[str, Any] | None) -> str:
    """The end of every prompt, also of later ones, as a long session may have dropped its beginning."""
    return format_instruction(ctx.session_id, ctx.path[-1], ctx.depth, ctx.path, output_schema)


def _answer_format(ctx: Context, definition: Definition) -> str:
    """If its answer is the result itself, only the declared form of the result."""
    schema = definition.spec.output_schema
    if definition.spec.answers is Answers.RETURN:
        return _how_to_answer(ctx, schema)
    return "" if schema is None or definition.kind is not Kind.MODEL else value_instruction(schema)


def _background(ctx: Context) -> str:
    text = ctx.background().text
    return f"## Context of the project\n\n{text}" if text else ""


def _join_parts(*parts: str) -> str:
    return "\n\n".join(part.strip() for part in parts if part.strip()) + "\n"


def _instructions(definition: Definition) -> str:
    """A prompt that begins with a slash is a command to a coding agent; a project may define commands that run programs without asking."""
    text = definition.instructions.strip()
    return f"## Instructions\n\n{text}" if text.startswith("/") else text


def _plain(definition: Definition, parameters: Mapping[str, Any]) -> str:
    """The task unchanged. Values inserted into the command are not repeated."""
    named = {"task", *parameters_in(definition.command)}
    task = str(parameters.get("task", "")) if "task" not in parameters_in(definition.command) else ""
    more = {name: value for name, value in parameters.items() if name not in named}
    parts = [part for part in (definition.instructions.strip(), task, "\n".join(_list_values(more))) if part]
    text = "\n\n".join(parts)
    return text if not text or text.endswith("\n") else f"{text}\n"


def _task(ctx: Context, parameters: Mapping[str, Any]) -> str:
    said = str(parameters.get("task", "")).strip()
    flat = " ".join(said.split())

    def is_said(value: Any) -> bool:
        return isinstance(value, str) and " ".join(value.split()) in flat

    lines = ["## Task", *(["", said] if said else [])]
    more = {name: value for name, value in parameters.items() if name != "task" and not (is_said(value) and len(value) > _SHORT)}
    if more:
        lines += ["", "Given with it:" if said else "Given:", "", *_list_values(more)]
    known = {} if ctx.task is None else ctx.task.to_dict()
    given = {**parameters, "task_number": parameters.get("number")}
    news = {
        name: value
        for name, value in known.items()
        if value not in (None, "", False) and name not in _OURS and not is_said(value) and given.get(name) != value
    }
    if news:
        lines += ["", "It belongs to this task of the project:", "", *_list_values(news)]
    return "\n".join(lines)


def _list_values(values: Mapping[str, Any]) -> list[str]:
    return [f"- {name}: {value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)}" for name, value in values.items()]


def _limits(ctx: Context) -> str:
    return (
        f"## Limits\n\nYou are stopped in {max(0.0, ctx.remaining):.0f} seconds, whatever you do. "
        "Write files as soon as they are worth something: the files in the working folder at that moment are kept. "
        f"A folder for intermediate files: {ctx.scratch}"
    )
