"""The environment of a command: the few variables every program needs, those its definition lets through, and what remit tells it.

Nothing else of ours reaches it: a key that stands in our environment for another agent is none of its business. Used by every
adapter that starts a program.
"""

from collections.abc import Iterable
from pathlib import Path

from remit.agents.definition import Definition
from remit.flow.context import Context
from remit.system.interpreter import BASIC, listed_environment

RETURN_FILE = "return.json"


def environment_for(definition: Definition, ctx: Context, *, more_names: Iterable[str] = ()) -> dict[str, str]:
    """The whole environment of a command of this definition, started for this delegation.

    Variables of remit's own come from here alone, whatever the definition says and whosoever's child we are ourselves.
    `more_names`: variables (or patterns) of ours that an adapter knows its program to need.
    """
    return {
        **listed_environment((*BASIC, *definition.pass_environment, *more_names)),
        **definition.environment,
        **ctx.environment(),
        **_told(ctx),
    }


def return_file_of(ctx: Context) -> Path:
    """Where it may leave its return (S3.7)."""
    return ctx.scratch / RETURN_FILE


def _told(ctx: Context) -> dict[str, str]:
    deadline = ctx._desk.delegation.deadline  # when it is told to hand in is no question an agent in Python has
    return {
        "REMIT_SCRATCH": str(ctx.scratch),
        "REMIT_RETURN_FILE": str(return_file_of(ctx)),
        "REMIT_DEADLINE": f"{ctx.deadline:.3f}",
        "REMIT_SOFT_DEADLINE": f"{ctx.deadline - (deadline.hard_at - deadline.soft_at):.3f}",
    }
