"""`remit models`: list the configured language models, or test which of them answer. Keys are named, never shown."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from remit.cli.exits import Exit
from remit.cli.options import Json, Root

if TYPE_CHECKING:
    from remit.cli.model_list import Listed
    from remit.settings.values import Price

ACTIONS = ("list", "test")
NONE_YET = """No language model is configured. Everything but the assistant and agents that need a model works without one.
In remit.toml, with the key in the environment (ANTHROPIC_API_KEY, OPENAI_API_KEY, GOOGLE_API_KEY …):

    model = "anthropic:claude-sonnet-5"

or a GGUF file on this machine: model = "local:/path/to/file.gguf"
"""


def models(
    action: Annotated[
        str, typer.Argument(metavar="[list|test]", help="`list` shows the configured models, `test` asks each.", show_default=False)
    ] = "list",
    name: Annotated[str | None, typer.Argument(metavar="[NAME]", help="Model to test.", show_default=False)] = None,
    seconds: Annotated[float, typer.Option(metavar="N", min=0.1, max=600, help="With test: how long each is waited for.")] = 30.0,
    root: Root = None,
    as_json: Json = False,
) -> Exit:
    """List the language models, or test which of them answer."""
    from remit.cli.project import find_root
    from remit.core.errors import Misused

    if action == "list" and name is None:
        return _list(find_root(root), as_json=as_json)
    if action == "add-local":
        raise Misused(
            "`remit models add-local` was removed: a local model is any GGUF file.",
            advice='Download one, and write model = "local:/path/to/file.gguf" in remit.toml. Models added earlier keep working.',
        )
    if action == "test":
        return _test(find_root(root), name, seconds, as_json=as_json)
    known = " or ".join(f"`remit models {one}`" for one in ACTIONS)
    raise Misused(f"Unknown: remit models {action}{'' if name is None else f' {name}'}.", advice=f"Use {known}.")


# ---- what there is


def _list(root: Path, *, as_json: bool) -> Exit:
    from remit.cli.model_list import keys_present, listed
    from remit.cli.output import say, say_json
    from remit.settings import load_settings

    settings = load_settings(root)
    found, keys = listed(settings, root), list(keys_present())
    if as_json:
        say_json(
            {
                "models": [one.to_dict() for one in found],
                "keys": [{"variable": variable, "providers": providers} for variable, providers in keys],
            }
        )
        return Exit.OK
    if found:
        _print(found)
    else:
        say(NONE_YET.rstrip())
    if keys:
        say()
        say("Keys in the environment: " + ", ".join(f"{variable} ({', '.join(providers)})" for variable, providers in keys))
    return Exit.OK


def _print(found: "list[Listed]") -> None:
    from rich.text import Text

    from remit.cli.output import console, say
    from remit.cli.tables import table
    from remit.cli.words import printable

    shown = table("", "name", "provider", "model", "key", "price per million", "context", folding=("name", "model", "key"))
    for one in found:
        meant = one.meant
        shown.add_row(
            "" if one.place is None else str(one.place),
            Text(printable(one.name), style="red" if one.fault else ""),
            meant.provider if meant else "-",
            printable(meant.model) if meant else "-",
            _key(one),
            price_words(one.price) if meant else "-",
            f"{one.context_tokens:,}" if one.context_tokens else "unknown",
        )
    console().print(shown)
    for one in found:
        if one.fault:
            say(f"{one.name}: {printable(one.fault.removeprefix(f'{one.name} '))} {printable(one.advice)}".rstrip())
    order = [one.name for one in found if one.place is not None]
    if len(order) > 1:
        say(f"Asked in this order, the next when one fails: {', '.join(order)}.")
    elif not order:
        say('None of them is asked unless an agent names it: write model = "NAME" in remit.toml.')


def _key(one: "Listed") -> str:
    meant = one.meant
    if meant is None or not meant.key_variables:
        return "-"
    if meant.key_variable:
        return f"{meant.key_variable} is set"
    return f"{meant.key_variables[0]} not set" if meant.needs_key else "-"


def price_words(price: "Price | None") -> str:
    """`3.00 in, 15.00 out`"""
    from remit.cli.words import money

    if price is None:
        return "unknown"
    return "free" if not price.input and not price.output else f"{money(price.input)} in, {money(price.output)} out"


# ---- do they answer?


def _test(root: Path, name: str | None, seconds: float, *, as_json: bool) -> Exit:
    from remit.cli.model_list import listed
    from remit.cli.model_trials import try_models
    from remit.cli.output import console, say, say_json
    from remit.cli.tables import cut, table
    from remit.cli.words import duration, one_line, printable, spent
    from remit.settings import load_settings

    settings = load_settings(root)
    names = [name] if name is not None else [one.name for one in listed(settings, root)]
    tried = try_models(settings, root, names, seconds)
    answering = bool(tried) and not any(one.fault for one in tried)
    if as_json:
        say_json({"models": [one.to_dict() for one in tried]})
        return Exit.OK if answering or not tried else Exit.FAILED
    if not tried:
        say(NONE_YET.rstrip())
        return Exit.OK
    shown = table("name", "answers", "took", "spent", "it said", shrinking=("it said",))
    for one in tried:
        used = spent(one.input_tokens + one.output_tokens, one.cost or 0.0)
        shown.add_row(printable(one.name), "no" if one.fault else "yes", duration(one.seconds), used or "-", cut(one_line(one.said, 80)))
    console().print(shown)
    for one in tried:
        if one.fault:
            say(f"{one.name}: {printable(one.fault.removeprefix(f'{one.name} '))} {printable(one.advice)}".rstrip())
    return Exit.OK if answering else Exit.FAILED
