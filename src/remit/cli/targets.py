"""Targets with operations, as `remit agents` shows them: those that come with remit, and one target with everything it can do."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from remit.core.agents import AgentSpec


def print_built_in(specs: "Sequence[AgentSpec]") -> None:
    """One line for each operation, below its target."""
    from remit.cli.output import console, say

    say("Built in:")
    say()
    console().print(_table(specs))
    shown = _harmless(specs)
    _print_next(shown, _target(shown))


def print_roles(specs: "Sequence[AgentSpec]") -> None:
    """By name alone: what each is for and who carries it out is `remit roles`' to tell."""
    from remit.cli.output import say

    say(f"Roles of the board: {', '.join(spec.name for spec in specs)}")
    say()
    say("Who is who   remit roles")


def print_target(target: str, specs: "Sequence[AgentSpec]", timeouts: "Callable[[AgentSpec], tuple[float, float]]") -> None:
    """What one target can do, and how long it is given."""
    from remit.cli.output import console, say
    from remit.cli.words import count, duration
    from remit.core.agents import is_built_in

    timeout, maximum = timeouts(specs[0])
    origin = ", built in" if all(map(is_built_in, specs)) else ""
    say(f"{target}: {count(len(specs), 'operation')}{origin}; {duration(timeout)} each by default, at most {duration(maximum)}")
    say()
    console().print(_table(specs))
    shown = _harmless(specs)
    _print_next(shown, shown.name)


def _print_next(spec: "AgentSpec", closer: str) -> None:
    from remit.cli.output import say

    say()
    say(f"Call one     remit delegate {_example(spec)}")
    say(f"Look closer  remit agents {closer}")


def _table(specs: "Sequence[AgentSpec]") -> object:
    from remit.cli.tables import cut, table
    from remit.cli.words import one_line

    shown = table("target", "operation", "takes", "does", shrinking=("takes", "does"))
    before = ""
    for spec in specs:
        target, _, operation = spec.name.partition(".")
        shown.add_row("" if target == before else target, operation, cut(_takes(spec)), cut(one_line(spec.description, 160)))
        before = target
    return shown


def _harmless(specs: "Sequence[AgentSpec]") -> "AgentSpec":
    """For an example: one that only reads, and takes something."""
    reading = (spec for spec in specs if spec.effects == ("read",) and spec.parameters_schema.get("required"))
    return next(reading, specs[0])


def _takes(spec: "AgentSpec") -> str:
    """`path, offset?, limit?`"""
    required = spec.parameters_schema.get("required", ())
    return ", ".join(name if name in required else f"{name}?" for name in spec.parameters_schema.get("properties", {}))


def _target(spec: "AgentSpec") -> str:
    return spec.name.partition(".")[0]


def _example(spec: "AgentSpec") -> str:
    target, _, operation = spec.name.partition(".")
    required = spec.parameters_schema.get("required", ())
    return " ".join([target, operation, *(f"{name}=…" for name in required)])
