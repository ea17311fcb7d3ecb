"""A return as a person reads it (S4.5): status, summary, the report's beginning or the data, artifacts, errors, next steps.

Nothing is said twice: not what the summary says, nor what the report says of the data.
"""

from pathlib import Path

from rich.console import Console
from rich.text import Text

from remit.cli.data import data_lines
from remit.cli.output import put
from remit.cli.reports import beginning_of
from remit.cli.tree import artifact_line
from remit.cli.words import MARKS, advice_lines, at_the_prompt, count, duration, one_line, printable
from remit.core.errors import ErrorInfo
from remit.core.result import Return
from remit.core.states import State
from remit.flow.reply import A_PERSON_IS_NEEDED, state_of

DATA_LINES = 40
DATA_CHARACTERS = 4_000


def print_return(result: Return, console: Console, root: Path) -> None:
    """`root`: the project's folder, where its artifacts are."""
    _print_title(result, console)
    put(console, printable(result.summary))
    if not _print_report(result, console, root):
        _print_data(result, console)
    for artifact in result.artifacts:
        put(console, artifact_line(artifact), Text("  artifact  ", style="green"))
    for error in result.errors:
        _print_error(error, result, console)
    for warning in result.warnings:
        put(console, Text(one_line(at_the_prompt(warning), 500), style="yellow"), Text("  warning  ", style="yellow"))
    if step := _next_step(result):
        _put_lines(step, console, "  next  ", "cyan")


def _next_step(result: Return) -> str:
    """Without the words that a person is needed, where they are followed by what to do: whoever reads this is that person."""
    return result.next_steps.removeprefix(A_PERSON_IS_NEEDED).lstrip() or result.next_steps


def _print_title(result: Return, console: Console) -> None:
    state = state_of(result)
    mark, style = MARKS[state]
    line = Text(f"{mark} {result.status}", style=style)
    if state != str(result.status):
        line.append(f" ({state})")
    line.append(f"  {result.metadata.agent_type}", style="bold").append(f"  {result.session_id}", style="dim")
    if state is not State.REFUSED:
        line.append(f"  {duration(result.metadata.duration_seconds)}", style="dim")
    put(console, line)


def _print_error(error: ErrorInfo, result: Return, console: Console) -> None:
    """Its message only when the summary has not said it, its advice only when it is not the next step."""
    label = Text(f"  {error.code}  ", style="red")
    words = one_line(error.message, 500)
    advice = error.recommendation if error.recommendation != _next_step(result) else ""
    if words not in one_line(result.summary, 500):
        put(console, words, label)
        label = Text("    → ", style="yellow")
    elif advice:
        label.append("→ ", style="yellow")
    else:
        put(console, Text(label.plain.rstrip(), style="red"))
    if advice:
        _put_lines(advice, console, label, "yellow")


def _put_lines(advice: str, console: Console, label: Text | str, style: str) -> None:
    """Lines that are to be copied somewhere (of a settings file, say) stay lines."""
    for line in advice_lines(advice):
        put(console, Text(line, style=style), Text(label, style=style) if isinstance(label, str) else label)
        label = ""


def _print_report(result: Return, console: Console, root: Path) -> bool:
    """The beginning of the report, where there is one: it says in words what the data holds."""
    found = beginning_of(result.artifacts, root)
    if found is None or not found.lines:
        return False
    told = one_line(result.summary, 500)
    lines = list(found.lines)
    while lines and one_line(lines[0], 500) in told:  # an empty line is in it too
        lines.pop(0)
    put(console, "")
    for line in lines:
        put(console, printable(line), "  " if line else "")
    more = f"… {count(found.left, 'more line')} in the report" if found.left else "This is all of the report"
    put(console, "")
    put(console, Text(f"{more}; --json shows the data", style="dim"), "  ")
    return True


def _print_data(result: Return, console: Console) -> None:
    """The structured result, unless the summary says it already; shortened visibly."""
    data = result.data
    if data is None or data == result.summary:
        return
    lines = list(data_lines(data))
    characters = 0
    label = "  "
    for number, line in enumerate(lines):
        characters += len(line)
        if number >= DATA_LINES or characters > DATA_CHARACTERS:
            put(console, Text(f"… {len(lines) - number:,} more lines: --json shows everything", style="dim"), label)
            break
        put(console, printable(line), label if line else "")
