"""`remit token`: who may come in by the doors of `remit serve`: tokens made, listed and revoked. A server that runs knows it at once."""

import getpass
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from remit.cli import arguments
from remit.cli.arguments import Json, Root
from remit.cli.exits import Exit
from remit.cli.project import find_root, project_folder
from remit.cli.render import console, cut, say, say_aside, say_json, table
from remit.core.deadline import SYSTEM_CLOCK, iso
from remit.core.errors import Misused

if TYPE_CHECKING:
    from remit.server.tokens import Grants, Token


DEEDS = ("new", "list", "revoke")
_MAY = "delegate, see-all, cancel-all, serve, metrics, relay"
_UNTIL = {"m": 60.0, "h": 3600.0, "d": 86_400.0, "w": 604_800.0, "y": 31_536_000.0}


def _option(metavar: str, text: str, **more: Any) -> Any:
    """Of `new`."""
    return typer.Option(metavar=metavar, help=f"With new: {text}", show_default=False, **more)


Words = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[new NAME|list|revoke NAME...]",
        help="`new` makes one and prints it once; `revoke` ends those of a name or an id.",
        show_default=False,
    ),
]
Agents = Annotated[list[str] | None, _option("PATTERN", "may use these agents or operations, as worker or code*. Default: all.")]
May = Annotated[list[str] | None, _option("WHAT", f"{_MAY}. Default: delegate.")]
Expires = Annotated[str | None, _option("SPAN", "lets nobody in after so long: 12h, 30d, 1y.")]
Spends = Annotated[list[str] | None, _option("KIND=LIMIT", "of everything it ever asks for: delegations, tokens, cost, alive, seconds.")]
TreeSpends = Annotated[list[str] | None, _option("KIND=LIMIT", "the same, of each tree that it asks for.")]
Longest = Annotated[str | None, _option("SPAN", "the longest that it may ask for.")]
Deepest = Annotated[int | None, _option("N", "no deeper than this.", min=1)]
Rate = Annotated[float | None, _option("N", "requests a second. Default: the setting.", min=0.01)]
Streams = Annotated[int | None, _option("N", "open at once. Default: the setting.", min=1)]
Named = Annotated[
    str | None, _option("NAME", "for whoever shows a certificate of this name, pattern or sha256:…; there is no secret then.")
]


def token(
    words: Words = None,
    agent: Agents = None,
    may: May = None,
    expires: Expires = None,
    budget: Spends = None,
    tree_budget: TreeSpends = None,
    timeout: Longest = None,
    depth: Deepest = None,
    rate: Rate = None,
    streams: Streams = None,
    certificate: Named = None,
    root: Root = None,
    as_json: Json = False,
) -> Exit:
    """Make, list and revoke the tokens by which others come in at the doors of `remit serve`."""
    deed, *rest = words or ["list"]
    if deed not in DEEDS or (deed == "list" and rest) or (deed == "new" and len(rest) != 1) or (deed == "revoke" and not rest):
        raise Misused("That is not how it is called.", advice="remit token new NAME, remit token list, or remit token revoke NAME...")
    if deed != "new" and any((agent, may, expires, budget, tree_budget, timeout, depth, rate, streams, certificate)):
        raise Misused(f"Options of a token go with `remit token new`, not with {deed}.")
    folder = project_folder(find_root(root))
    if deed == "list":
        return _list(folder, as_json=as_json)
    if deed == "revoke":
        return _revoke(folder, rest, as_json=as_json)
    from remit.server.tokens import Grants

    grants = Grants(
        permissions=_doing(may or ["delegate"]),
        agents=_patterns(agent),
        budget=arguments.budget(budget or []),
        tree=arguments.budget(tree_budget or []),
        timeout_seconds=arguments.seconds(timeout, "--timeout"),
        max_depth=depth,
        expires_at=_until(expires),
        requests_per_second=rate,
        streams=streams,
    )
    return _new(folder, rest[0], grants, certificate, as_json=as_json)


def _new(folder: "Path", name: str, grants: "Grants", certificate: str | None, *, as_json: bool) -> Exit:
    from remit.server.authenticator import checked_name
    from remit.server.tokens import Tokens
    from remit.system.files import make_folder

    make_folder(folder)
    made, secret = Tokens(folder).new(name, grants, None if certificate is None else checked_name(certificate))
    _note(folder, "token_made", made)
    if as_json:
        say_json({**_document(made, {}), "token": secret})
        return Exit.OK
    if secret is None:
        say(f"Whoever shows a certificate of {made.certificate} comes in: {_scope(made)}.")
        return Exit.OK
    say(secret)
    say_aside(
        f"{name}: {_scope(made)}. This is shown once and kept nowhere: whoever has it comes in. Send it as `authorization: Bearer …`."
    )
    return Exit.OK


def _list(folder: "Path", *, as_json: bool) -> Exit:
    from remit.server.tokens import Tokens

    tokens = Tokens(folder)
    found, used = tokens.all(), tokens.last_used()
    if as_json:
        say_json({"tokens": [_document(one, used) for one in found]})
        return Exit.OK
    if not found:
        say("Nobody was given a token. `remit token new NAME` makes one.")
        return Exit.OK
    shown = table("name", "id", "for", "made", "last used", "state", shrinking=("for",))
    for one in found:
        row = (_day(one.created_at), _day(used.get(one.token_id)), _state(one))
        shown.add_row(one.name, one.token_id, cut(_scope(one)), *row)
    console().print(shown)
    return Exit.OK


def _revoke(folder: "Path", names: Sequence[str], *, as_json: bool) -> Exit:
    from remit.server.tokens import Tokens

    tokens = Tokens(folder)
    ended = []
    for name in names:
        revoked = tokens.revoke(name)
        ended += revoked
        for one in revoked:
            _note(folder, "token_revoked", one)
    if as_json:
        say_json({"revoked": [_document(one, {}) for one in ended]})
    elif ended:
        named = ", ".join(f"{one.name} ({one.token_id})" for one in ended)
        say(f"Revoked: {named}. Nobody comes in by that any more, and open streams end within seconds.")
    else:
        say("Revoked before: nothing changed.")
    return Exit.OK


def _note(folder: "Path", event: str, token: "Token") -> None:
    """Into the audit log, with who did it."""

    from remit.policy.audit import note_access

    try:
        by = getpass.getuser()
    except (KeyError, OSError):  # a user without a name
        by = "?"
    kind = "token" if token.certificate is None else "cert"
    named = token.name if token.certificate is None else token.certificate
    entry = {"event": event, "principal": f"{kind}:{named}", "token_id": token.token_id, "by": by}
    note_access(folder, {**entry, "because": _scope(token)} if event == "token_made" else entry)


# ---- what was typed


def _doing(words: Sequence[str]) -> Any:
    from remit.server.tokens import Permission

    given = [one for word in words for one in word.split(",")]
    unknown = [one for one in given if one not in list(Permission)]
    if unknown:
        raise Misused(f"A token cannot be allowed to {unknown[0]!r:.40}.", advice=f"Use {_MAY}.")
    return frozenset(map(Permission, given))


def _patterns(words: Sequence[str] | None) -> tuple[str, ...] | None:
    given = [one.strip() for word in words or () for one in word.split(",")]
    if not all(one and len(one) <= 128 and one.isprintable() for one in given):
        raise Misused("--agent takes the name of an agent, or a pattern of names.", advice="Write e.g. --agent worker --agent 'code*'.")
    return tuple(given) or None


def _until(text: str | None) -> float | None:
    if text is None:
        return None
    number, unit = text.strip()[:-1], text.strip()[-1:]
    try:
        span = float(number) * _UNTIL[unit]
    except (ValueError, KeyError):
        span = 0.0
    if not 0 < span < 1e10:
        raise Misused(f"--expires takes a span of time, not {text!r:.40}.", advice="Write e.g. --expires 12h, 30d or 1y.")
    return SYSTEM_CLOCK.wall() + span


# ---- in words


def _document(token: "Token", used: dict[str, float]) -> dict[str, Any]:
    def at(moment: float | None) -> str | None:
        return None if moment is None else iso(moment)

    return {
        "name": token.name,
        "id": token.token_id,
        "state": _state(token),
        "certificate": token.certificate,
        "created_at": iso(token.created_at),
        "expires_at": at(token.grants.expires_at),
        "revoked_at": at(token.revoked_at),
        "last_used_at": at(used.get(token.token_id)),
        "grants": {name: value for name, value in token.grants.to_dict().items() if name != "expires_at"},
    }


def _state(token: "Token") -> str:
    fault = token.fault(SYSTEM_CLOCK.wall())
    if fault is not None:
        return fault
    expires_at = token.grants.expires_at
    return "holds" if expires_at is None else f"until {_day(expires_at)}"


def _scope(token: "Token") -> str:
    """What it may, in a few words."""
    from remit.server.tokens import Permission

    grants = token.grants
    said = [f"certificate {token.certificate}"] if token.certificate is not None else []
    asks = grants.agents is not None or grants.permissions & {
        Permission.DELEGATE,
        Permission.SERVE,
    }  # whoever only looks has to do with no agent
    whom = f" {', '.join(grants.agents) if grants.agents is not None else 'any agent'}" if asks else ""
    said.append("/".join(sorted(grants.permissions)) + whom)
    for limits, where in ((grants.budget, "in all"), (grants.tree, "a tree")):
        if limits is not None:
            said += [f"{value:g} {kind} {where}" for kind, value in limits.to_dict().items() if value is not None]
    if grants.timeout_seconds is not None:
        said.append(f"{grants.timeout_seconds:g} s")
    if grants.max_depth is not None:
        said.append(f"depth {grants.max_depth}")
    if grants.requests_per_second is not None:
        said.append(f"{grants.requests_per_second:g} requests/s")
    return "; ".join(said)


def _day(moment: float | None) -> str:
    return "never" if moment is None else datetime.fromtimestamp(moment).astimezone().strftime("%Y-%m-%d %H:%M")
