"""The built-in meta-builder: an agent file or a command file from the words of a description, by rule.

It puts the user's own words into the form that loads, and adds no thought of its own: its summary says so. Whether the file loads, and
where it is filed, is `orchestrator.meta`'s to say.
"""

import json
import re
from typing import Annotated, Any, Literal

from pydantic import Field

from remit.agents.builtin.roles.answering import answered, put, shortly
from remit.agents.function import FunctionAgent, agent
from remit.flow.context import Context

DESCRIPTION_LENGTH = 200
_SENTENCE = re.compile(r"(.+?[.!?])(?:\s|$)", re.DOTALL)
_ASKS = re.compile(r"\$(?:ARGUMENTS\b|[1-9](?!\d))")


@agent("meta-builder", effects=("write",), acts_on={"write_to": "path"}, requires_artifacts=True)
async def builder(
    ctx: Context,
    task: str,
    description: Annotated[str, Field(description="What is wanted, in the user's words; else the task says it.")] = "",
    kind: Literal["agent", "command"] = "agent",
    name: str = "new",
    write_to: str | None = None,
    **more: Any,
) -> dict[str, Any]:
    """Write an agent file or a command file from a description, by rule."""
    words = readable(description or task)
    text = agent_file(name, words) if kind == "agent" else command_file(words)
    path = await put(ctx, text, write_to, f"{name}.md", "documentation", f"The {kind} {name}, a plain file.")
    said = f"A plain {kind} file of your own words. It was written by rule, without judgement: read it and say more where it matters."
    return answered("completed", said, data={"file": text, "path": path, "is_plain": True})


META_BUILDER: FunctionAgent = builder


def readable(words: str) -> str:
    """Without signs that no file of text should hold, and no YAML can."""
    return "".join(sign if sign.isprintable() or sign in "\n\t" else " " for sign in words).strip() or "Nothing was said."


def agent_file(name: str, words: str) -> str:
    return (
        f"---\ndescription: {_quoted(words)}\n---\n\n"
        f"You are {name}, an agent of this project. What you are for:\n\n{words}\n\n"
        "## How you work\n\n"
        "1. Read what you are given and the files it names before you do anything.\n"
        "2. Do what you are for, and nothing beyond it. Say what you could not find out or do.\n\n"
        "## What you hand back\n\n"
        "The result, and every file that you wrote as an artifact. The summary says in two to five sentences what you did and found.\n"
    )


def command_file(words: str) -> str:
    """What the user types behind the command's name always stands somewhere in it."""
    asks = "" if _ASKS.search(words) else "\n\n$ARGUMENTS"
    return f'---\ndescription: {_quoted(words)}\nargument-hint: "[words]"\n---\n\n{words}{asks}\n'


def _quoted(words: str) -> str:
    """The first sentence, as YAML takes it whatever stands in it."""
    first = _SENTENCE.match(words)
    return json.dumps(shortly(first[1] if first else words, DESCRIPTION_LENGTH), ensure_ascii=False)
