"""The prompt of an agent that is asked in words: what it is, what is to be done, what is known, and how to answer (S3.8, S6.11).

Text only. The same for commands, coding agents and models; its end is the format instruction. A plain program (a command whose output
is the result itself) is told nothing but its instructions and its task.
"""

import json
from collections.abc import Mapping
from typing import Any

from remit.agents.definition import Definition, Kind
from remit.agents.placeholders import parameters_in
from remit.core.agents import Answers
from remit.flow.context import Context
from remit.flow.format import format_instruction, repair_instruction

_OURS = frozenset({"complexity", "context", "route", "has_plan", "commit_message"})
"""Of a task's context: for the record, not for the agent."""
_SHORT = 200
"""So long a parameter may be and still be listed although the task's words have it: instructions name parameters by their names."""
_DELEGATING = """\
## Delegating

You have the tools of remit: `list_agents` says who there is, `delegate` hands work to one of them and gives back its checked return.
A refused delegation is final: do that part yourself.
"""


def first_prompt(definition: Definition, ctx: Context, parameters: Mapping[str, Any]) -> str:
    """What it is asked first."""
    if definition.kind is Kind.COMMAND and definition.spec.answers is Answers.VALUE:
        return _plain(definition, parameters)
    parts = [_instructions(definition), _task(ctx, parameters), _limits(ctx)]
    if definition.delegates:
        parts.append(_DELEGATING)
    background = ctx.background()
    if background.text:
        parts.append(f"## Context of the project\n\n{background.text}")
    if definition.spec.answers is Answers.RETURN:
        parts.append(_how_to_answer(ctx))
    return "\n\n".join(part.strip() for part in parts if part.strip()) + "\n"


def repair_prompt(ctx: Context, *, in_session: bool, first: str = "") -> str:
    """What it is asked the second time. An agent that remembers nothing is told everything again."""
    assert ctx.repair is not None
    again = f"{repair_instruction(ctx.repair.faults)}\n{_how_to_answer(ctx)}"
    if in_session:
        return again
    return f"{first}\n## What you handed in before\n\n{ctx.repair.original}\n\n## What was wrong with it\n\n{again}"


def hand_in_prompt(ctx: Context, seconds: float) -> str:
    """What an agent that can be spoken to is told at the soft deadline (S2.4)."""
    return (
        f"Time is nearly up: {seconds:.0f} seconds are left. Stop working now and start nothing new. Hand in what there is; "
        f"status partial unless all is done, and name in errors what is missing.\n\n{_how_to_answer(ctx)}"
    )


def _how_to_answer(ctx: Context) -> str:
    """The end of every prompt (S3.8): also of a later one, as a long session may have forgotten its beginning."""
    return format_instruction(ctx.session_id, ctx.path[-1], ctx.depth, ctx.path)


def _instructions(definition: Definition) -> str:
    """A prompt that begins with a slash is, to a coding agent, one of its commands; a project may define them, to run programs unasked."""
    text = definition.instructions.strip()
    return f"## Instructions\n\n{text}" if text.startswith("/") else text


def _plain(definition: Definition, parameters: Mapping[str, Any]) -> str:
    """The task as it stands. What is filled into the command is not said again."""
    named = {"task", *parameters_in(definition.command)}
    task = str(parameters.get("task", "")) if "task" not in parameters_in(definition.command) else ""
    more = {name: value for name, value in parameters.items() if name not in named}
    parts = [part for part in (definition.instructions.strip(), task, "\n".join(_listed(more))) if part]
    text = "\n\n".join(parts)
    return text if not text or text.endswith("\n") else f"{text}\n"


def _task(ctx: Context, parameters: Mapping[str, Any]) -> str:
    said = str(parameters.get("task", "")).strip()
    lines = ["## Task", *(["", said] if said else [])]
    more = {name: value for name, value in parameters.items() if name != "task" and not _is_long_and_said(value, said)}
    if more:
        lines += ["", "Given with it:" if said else "Given:", "", *_listed(more)]
    task = ctx.task
    if task is not None:
        known = {name: value for name, value in task.to_dict().items() if _is_news(name, value, parameters)}
        known = {name: value for name, value in known.items() if not _is_said(value, said)}
        if known:
            lines += ["", "It belongs to this task of the project:", "", *_listed(known)]
    return "\n".join(lines)


def _is_news(name: str, value: Any, parameters: Mapping[str, Any]) -> bool:
    """Not what was loaded, how it was routed or what stands among the parameters already."""
    given = parameters.get("number" if name == "task_number" else name)
    return value not in (None, "", False) and name not in _OURS and given != value


def _is_said(value: Any, said: str) -> bool:
    """Whether the words of the task have all of it."""
    if isinstance(value, str):
        return _flat(value) in _flat(said)
    return isinstance(value, list) and all(isinstance(one, str) and _is_said(one, said) for one in value)


def _is_long_and_said(value: Any, said: str) -> bool:
    words = value if isinstance(value, str) else "".join(map(str, value)) if isinstance(value, list) else ""
    return len(words) > _SHORT and _is_said(value, said)


def _flat(text: str) -> str:
    return " ".join(text.split())


def _listed(values: Mapping[str, Any]) -> list[str]:
    return [f"- {name}: {value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)}" for name, value in values.items()]


def _limits(ctx: Context) -> str:
    return (
        f"## Limits\n\nYou are stopped in {max(0.0, ctx.remaining):.0f} seconds, whatever you do. "
        "Write files as soon as they are worth something: what stands in the working folder then is kept. "
        f"A folder for intermediate files: {ctx.scratch}"
    )
