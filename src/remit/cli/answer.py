"""A return as a person reads it (S4.5): status, summary, artifacts, errors with what to do, next steps."""

from rich.console import Console
from rich.text import Text

from remit.cli.output import json_text
from remit.cli.tree import artifact_line
from remit.cli.words import MARKS, duration, one_line, printable
from remit.core.result import Return
from remit.flow.reply import state_of

DATA_LINES = 40
DATA_CHARACTERS = 4_000


def print_return(result: Return, console: Console, *, title: bool = True) -> None:
    state = state_of(result)
    mark, style = MARKS[state]
    if title:
        line = Text(f"{mark} {result.status}", style=style)
        if state != str(result.status):
            line.append(f" ({state})")
        line.append(f"  {result.metadata.agent_type}", style="bold")
        line.append(f"  {result.session_id}  {duration(result.metadata.duration_seconds)}", style="dim")
        console.print(line, soft_wrap=True)
    console.print(Text(printable(result.summary)), soft_wrap=True)
    _print_data(result, console)
    for artifact in result.artifacts:
        console.print(Text("  artifact  ", style="green").append_text(artifact_line(artifact)), soft_wrap=True)
    for error in result.errors:
        console.print(Text(f"  {error.code}  ", style="red").append(one_line(error.message, 500), style="default"), soft_wrap=True)
        if error.recommendation and error.recommendation != result.next_steps:
            console.print(Text(f"    → {one_line(error.recommendation, 500)}", style="yellow"), soft_wrap=True)
    for warning in result.warnings:
        console.print(Text(f"  warning  {one_line(warning, 500)}", style="yellow"), soft_wrap=True)
    if result.next_steps:
        console.print(Text(f"  next  {one_line(result.next_steps, 500)}", style="cyan"), soft_wrap=True)


def _print_data(result: Return, console: Console) -> None:
    """The structured result, unless the summary says it already; shortened visibly."""
    data = result.data
    if data is None or data == result.summary:
        return
    text = data if isinstance(data, str) else json_text(data, indent=2)
    lines = text[:DATA_CHARACTERS].splitlines()
    for line in lines[:DATA_LINES]:
        console.print(Text(f"  {printable(line)}"), soft_wrap=True)
    if len(lines) > DATA_LINES or len(text) > DATA_CHARACTERS:
        console.print(Text(f"  … {len(text):,} characters in all: --json shows everything", style="dim"))
