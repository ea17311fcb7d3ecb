"""`remit config`: every setting, its value and where it came from. Reads only."""

from remit.cli.exits import Exit
from remit.cli.options import Json, Root


def config(root: Root = None, as_json: Json = False) -> Exit:
    """Print the settings that hold here, and where each came from."""
    from rich.text import Text

    from remit.cli.output import console, json_text, say, say_json
    from remit.cli.project import find_root
    from remit.cli.tables import cut, table
    from remit.settings import describe, load_settings

    folder = find_root(root)
    told = describe(load_settings(folder))
    if as_json:
        settings = [{"key": key, "value": value, "source": source} for key, value, source in told]
        say_json({"root": str(folder), "settings": settings})
        return Exit.OK
    shown = table("key", "value", "from", shrinking=("value",))
    for key, value, source in told:
        text = value if isinstance(value, str) else json_text(value)
        shown.add_row(key, cut(text), Text(source, style="dim" if source == "default" else "green"))
    console().print(shown)
    say(f"\nProject: {folder}. Change a setting in remit.toml, [tool.remit] of pyproject.toml, or as REMIT_KEY in the environment.")
    return Exit.OK
