"""`remit models`: the language models there are, a local one added, or each asked whether it answers. Keys are named, never shown."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from remit.cli.exits import Exit
from remit.cli.options import Json, Root

if TYPE_CHECKING:
    from remit.cli.model_list import Listed
    from remit.models.local_fetch import Tell
    from remit.settings.values import Price

ACTIONS = ("list", "add-local", "test")
NONE_YET = """No language model is configured. Everything but the assistant and agents that need a model works without one.
In remit.toml, with the key in the environment (ANTHROPIC_API_KEY, OPENAI_API_KEY, GOOGLE_API_KEY …):

    model = "anthropic:claude-sonnet-5"

or a small one on this machine: remit models add-local"""


def models(
    action: Annotated[
        str, typer.Argument(metavar="[list|add-local|test]", help="What to do; `list` shows what there is.", show_default=False)
    ] = "list",
    name: Annotated[str | None, typer.Argument(metavar="[NAME]", help="Of the model to add or to test.", show_default=False)] = None,
    from_: Annotated[
        Path | None,
        typer.Option("--from", metavar="FILE", help="With add-local: a GGUF file, or a wheel that holds one.", show_default=False),
    ] = None,
    seconds: Annotated[float, typer.Option(metavar="N", min=0.1, max=600, help="With test: how long each is waited for.")] = 30.0,
    root: Root = None,
    as_json: Json = False,
) -> Exit:
    """List the language models, add a local one, or test which of them answer."""
    from remit.cli.project import find_root
    from remit.core.errors import Misused

    if from_ is not None and action != "add-local":
        raise Misused("--from goes with add-local.", advice="remit models add-local NAME --from FILE.gguf")
    if action == "list" and name is None:
        return _list(find_root(root), as_json=as_json)
    if action == "add-local":
        return _add(name, from_, as_json=as_json)
    if action == "test":
        return _test(find_root(root), name, seconds, as_json=as_json)
    known = " or ".join(f"`remit models {one}`" for one in ACTIONS)
    raise Misused(f"Unknown: remit models {action}{'' if name is None else f' {name}'}.", advice=f"Use {known}.")


# ---- what there is


def _list(root: Path, *, as_json: bool) -> Exit:
    from remit.cli.model_list import added, keys_present, listed
    from remit.cli.output import say, say_json
    from remit.settings import load_settings

    settings = load_settings(root)
    found, keys, local = listed(settings, root), list(keys_present()), added(settings)
    if as_json:
        say_json(
            {
                "models": [one.to_dict() for one in found],
                "keys": [{"variable": variable, "providers": providers} for variable, providers in keys],
                "local": [
                    {
                        "name": one.name,
                        "file": str(one.file),
                        "bytes": one.size,
                        "context_tokens": one.context_tokens(None),
                        "license": one.head.license or None,
                        "calls_tools": one.head.calls_tools,
                        "used_by": uses,
                    }
                    for one, uses in local
                ],
            }
        )
        return Exit.OK
    if found:
        _print(found)
    else:
        say(NONE_YET)
    if keys:
        say()
        say("Keys in the environment: " + ", ".join(f"{variable} ({', '.join(providers)})" for variable, providers in keys))
    for one, uses in local:
        if not uses:
            say(f'Added and not used: {one.name}, {one.size / 1e6:.0f} MB. Use it: model = "local:{one.name}"')
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


# ---- one more


def _add(name: str | None, source: Path | None, *, as_json: bool) -> Exit:
    from remit.cli.output import say, say_aside, say_json
    from remit.models.local import INSTALL
    from remit.models.local_fetch import add_local, lines_for

    done = add_local(name, source, _teller())
    weights = done.weights
    if as_json:
        say_json(
            {
                "name": weights.name,
                "file": str(weights.file),
                "bytes": weights.size,
                "was_there": done.was_there,
                "license": weights.head.license or None,
                "settings": lines_for(weights.name),
            }
        )
        return Exit.OK
    license_ = f", licence {weights.head.license}" if weights.head.license else ""
    say(f"{weights.name} {'is there already' if done.was_there else 'was added'}: {weights.file}, {weights.size / 1e6:.0f} MB{license_}.")
    say("Write in remit.toml:\n")
    say("\n".join(f"    {line}" if line else "" for line in lines_for(weights.name).splitlines()))
    if not _is_installed():
        say_aside(f"\nRunning it needs xllamacpp, which is not installed: {INSTALL}")
    return Exit.OK


def _is_installed() -> bool:
    import importlib.util

    return importlib.util.find_spec("xllamacpp") is not None


def _teller() -> "Tell":
    """Progress on one line of a terminal; elsewhere a line for each thing begun."""
    import sys

    is_terminal, last = sys.stderr.isatty(), ["", -1]

    def tell(what: str, fraction: float | None) -> None:
        part = -1 if fraction is None else int(100 * fraction)
        if [what, part] == last or (not is_terminal and what == last[0]):
            return
        last[:] = [what, part]
        if is_terminal:
            bar = "" if part < 0 else f" {'█' * (part // 5)}{'░' * (20 - part // 5)} {part} %"
            print(f"\r\033[K{what}{bar}", end="\n" if part >= 100 else "", file=sys.stderr, flush=True)
        else:
            print(f"{what} …", file=sys.stderr, flush=True)

    return tell


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
        say(NONE_YET)
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
