"""`remit config`: the settings that hold, and where each came from. Reads only."""

from pathlib import Path
from typing import Annotated, Any

import typer

from remit.cli.arguments import Json, Root
from remit.cli.exits import Exit
from remit.cli.project import find_root
from remit.cli.render import console, count, cut, json_text, say, say_json, table

HOW = "Change a setting in remit.toml, in [tool.remit] of pyproject.toml, or as REMIT_KEY in the environment."


def config(
    every: Annotated[bool, typer.Option("--all", help="Also the settings that have their defaults.")] = False,
    root: Root = None,
    as_json: Json = False,
) -> Exit:
    """Print the settings that differ from their defaults, and where each came from; with --all or --json every setting."""
    from remit.system.settings_files import describe, load_settings

    folder = find_root(root)
    told = describe(load_settings(folder))
    if as_json:
        settings = [{"key": key, "value": value, "source": source} for key, value, source in told]
        say_json({"root": str(folder), "settings": settings})
    else:
        _print(folder, told, every)
    return Exit.OK


def _print(folder: Path, told: list[tuple[str, Any, str]], every: bool) -> None:
    from rich.text import Text

    changed = [one for one in told if one[2] != "default"]
    plain = [one for one in told if one[2] == "default"]
    shown = table("key", "value", "from", shrinking=("value", "from"))
    for key, value, source in [*changed, *(plain if every else [])]:
        text = value if isinstance(value, str) else json_text(value)
        shown.add_row(key, cut(text), cut(source, "dim" if source == "default" else "green"))
    if shown.row_count:
        console().print(shown)
        say()
    if not every:
        say(
            f"{count(len(plain), 'setting')} {'have their defaults' if changed else 'in all, each with its default'}: `remit config --all`."
        )
    console().print(Text(f"Project: {folder}", overflow="fold"), soft_wrap=not console().is_terminal)
    say(HOW)
