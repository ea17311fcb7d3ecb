"""The environment of a command: the few variables every program needs, those its definition lets through, and what remit tells it.

Nothing else of ours reaches it: a key that stands in our environment for another agent is none of its business. Used by every
adapter that starts a program.
"""

import os
from collections.abc import Iterable
from fnmatch import fnmatchcase
from pathlib import Path

from remit.agents.definition import OURS, Definition
from remit.flow.context import Context

BASIC = (
    "PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "LC_*", "TZ", "TERM", "COLORTERM", "NO_COLOR",
    "TMPDIR", "TMP", "TEMP", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_CACHE_HOME", "XDG_STATE_HOME", "XDG_RUNTIME_DIR",
    "SSL_CERT_FILE", "SSL_CERT_DIR", "NODE_EXTRA_CA_CERTS", "VIRTUAL_ENV",
)  # fmt: skip
"""What programs need to find their files and speak the user's language. None of them holds a secret."""
RETURN_FILE = "return.json"


def environment_for(definition: Definition, ctx: Context, *, more_names: Iterable[str] = ()) -> dict[str, str]:
    """The whole environment of a command of this definition, started for this delegation.

    Variables of remit's own come from here alone, whatever the definition says and whosoever's child we are ourselves.
    `more_names`: variables (or patterns) of ours that an adapter knows its program to need.
    """
    return {
        **_let_through((*BASIC, *definition.pass_environment, *more_names)),
        **definition.environment,
        **ctx.environment(),
        **_told(ctx),
    }


def return_file_of(ctx: Context) -> Path:
    """Where it may leave its return (S3.7)."""
    return ctx.scratch / RETURN_FILE


def _let_through(patterns: tuple[str, ...]) -> dict[str, str]:
    """Never one of remit's: another delegation's token, deadline or mark would be taken for its own."""
    names = {pattern for pattern in patterns if not _is_pattern(pattern)}
    shapes = [pattern for pattern in patterns if _is_pattern(pattern)]
    ours = {name: value for name, value in os.environ.items() if not name.startswith(OURS)}
    return {name: value for name, value in ours.items() if name in names or any(fnmatchcase(name, shape) for shape in shapes)}


def _is_pattern(name: str) -> bool:
    return any(sign in name for sign in "*?[")


def _told(ctx: Context) -> dict[str, str]:
    deadline = ctx._desk.delegation.deadline  # when it is told to hand in is no question an agent in Python has
    return {
        "REMIT_SCRATCH": str(ctx.scratch),
        "REMIT_RETURN_FILE": str(return_file_of(ctx)),
        "REMIT_DEADLINE": f"{ctx.deadline:.3f}",
        "REMIT_SOFT_DEADLINE": f"{ctx.deadline - (deadline.hard_at - deadline.soft_at):.3f}",
    }
