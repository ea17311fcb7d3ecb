"""Options and arguments, declared without the library that reads them: to import it takes longer than a command of the board may work.

`quick` reads a plain command line from these as they stand. Where typer reads it, they are made into typer's own (`for_typer`); a command
that declares with typer itself is left as it is.
"""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, TypeVar, get_args, get_origin

Command = TypeVar("Command", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True, kw_only=True)
class Declaration:
    """What stands beside the type in `Annotated[str, option(…)]`."""

    is_argument: bool
    names: tuple[str, ...]
    """As it is typed; empty: after the parameter's own name."""
    words: Mapping[str, Any]
    """For help and completion, as typer names them; they decide nothing about what is read."""


def option(
    *names: str, help: str, metavar: str | None = None, show_default: bool = True, panel: str | None = None, offering: Any = None
) -> Declaration:
    """`offering`: what the shell completes it with."""
    words = {"help": help, "metavar": metavar, "show_default": show_default, "rich_help_panel": panel, "autocompletion": offering}
    return Declaration(is_argument=False, names=names, words=words)


def argument(*, metavar: str, help: str, show_default: bool = True, offering: Any = None) -> Declaration:
    words = {"help": help, "metavar": metavar, "show_default": show_default, "autocompletion": offering}
    return Declaration(is_argument=True, names=(), words=words)


def for_typer(command: Command) -> Command:
    """The same function, which says of its parameters what typer understands."""
    said = inspect.signature(command)
    typed = [one.replace(annotation=_typed(one.annotation)) for one in said.parameters.values()]
    command.__signature__ = said.replace(parameters=typed)  # type: ignore[attr-defined]
    return command


def _typed(annotation: Any) -> Any:
    if get_origin(annotation) is not Annotated:
        return annotation
    kind, *beside = get_args(annotation)
    return Annotated[(kind, *(_of_typer(one) if isinstance(one, Declaration) else one for one in beside))]


def _of_typer(one: Declaration) -> Any:
    import typer

    return typer.Argument(**one.words) if one.is_argument else typer.Option(*one.names, **one.words)
