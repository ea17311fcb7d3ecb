"""`remit token`: tokens for callers of `remit serve`. A running server sees changes at once."""

import getpass
from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from remit.cli import arguments
from remit.cli.exits import Exit
from remit.cli.project import Project
from remit.cli.render import console, cut, say_aside, table
from remit.core.deadline import SYSTEM_CLOCK, iso
from remit.core.errors import Misused

if TYPE_CHECKING:
    from remit.server.tokens import Token

_MAY = "delegate, see-all, cancel-all, serve, metrics, relay"
_SPANS = {"m": 60.0, "h": 3600.0, "d": 86_400.0, "w": 604_800.0, "y": 31_536_000.0}


def _option(metavar: str, text: str, **more: Any) -> Any:
    return typer.Option(metavar=metavar, help=text, show_default=False, **more)


def new(
    project: Project,
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the caller.", show_default=False)],
    agent: Annotated[list[str] | None, _option("PATTERN", "May use these agents or operations: worker, code*. Default: all.")] = None,
    may: Annotated[list[str] | None, _option("WHAT", f"{_MAY}. Default: delegate.")] = None,
    expires: Annotated[str | None, _option("SPAN", "Expires after 12h, 30d, 1y.")] = None,
    budget: Annotated[
        list[str] | None, _option("KIND=LIMIT", "Of all its requests together: delegations, tokens, cost, alive, seconds.")
    ] = None,
    tree_budget: Annotated[list[str] | None, _option("KIND=LIMIT", "The same, of each tree that it requests.")] = None,
    timeout: Annotated[str | None, _option("SPAN", "The longest timeout that it may request.")] = None,
    depth: Annotated[int | None, _option("N", "The greatest depth of its trees.", min=1)] = None,
    rate: Annotated[float | None, _option("N", "Requests per second. Default: the setting.", min=0.01)] = None,
    streams: Annotated[int | None, _option("N", "Open streams. Default: the setting.", min=1)] = None,
) -> Exit:
    """Create a token and print it once: only its hash is kept."""
    from remit.server.tokens import Grants, Tokens
    from remit.system.files import make_folder

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
    make_folder(project.folder)
    made, secret = Tokens(project.folder).new(name, grants)
    _write_audit(project, "token_made", made)
    project.answer({**_document(made), "token": secret}, secret)
    if not project.as_json:
        say_aside(f"{name}: {_scope(made)}. It is shown once: keep it secret. Send it as `authorization: Bearer …`.")
    return Exit.OK


def token(project: Project) -> Exit:
    """List the tokens of callers of `remit serve`; `remit token new` creates one, `remit token revoke` ends one."""
    from remit.server.tokens import Tokens

    found = Tokens(project.folder).all()
    if project.as_json or not found:
        return project.answer({"tokens": [_document(one) for one in found]}, "There are no tokens. Create one: remit token new NAME")
    shown = table("name", "id", "for", "made", "state", shrinking=("for",))
    for one in found:
        shown.add_row(one.name, one.token_id, cut(_scope(one)), _day(one.created_at), _state(one))
    console().print(shown)
    return Exit.OK


def revoke(
    project: Project, names: Annotated[list[str], typer.Argument(metavar="NAME", help="Names or ids of tokens.", show_default=False)]
) -> Exit:
    """Revoke tokens. A running server refuses them from the next request on."""
    from remit.server.tokens import Tokens

    tokens, ended = Tokens(project.folder), []
    for name in names:
        revoked = tokens.revoke(name)
        ended += revoked
        for one in revoked:
            _write_audit(project, "token_revoked", one)
    listed = ", ".join(f"{one.name} ({one.token_id})" for one in ended)
    text = f"Revoked: {listed}. Open streams end within seconds." if ended else "Already revoked: nothing changed."
    return project.answer({"revoked": [_document(one) for one in ended]}, text)


def _write_audit(project: Project, event: str, token: "Token") -> None:
    from remit.policy.audit import note_access

    try:
        by = getpass.getuser()
    except (KeyError, OSError):  # a user without a name
        by = "?"
    entry = {"event": event, "principal": f"token:{token.name}", "token_id": token.token_id, "by": by}
    note_access(project.folder, {**entry, "because": _scope(token)} if event == "token_made" else entry)


# ---- what was typed


def _doing(words: Sequence[str]) -> Any:
    from remit.server.tokens import Permission

    given = [one for word in words for one in word.split(",")]
    unknown = [one for one in given if one not in list(Permission)]
    if unknown:
        raise Misused(f"Unknown permission {unknown[0]!r:.40}.", advice=f"Use {_MAY}.")
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
        span = float(number) * _SPANS[unit]
    except (ValueError, KeyError):
        span = 0.0
    if not 0 < span < 1e10:
        raise Misused(f"--expires takes a span of time, not {text!r:.40}.", advice="Write e.g. --expires 12h, 30d or 1y.")
    return SYSTEM_CLOCK.wall() + span


# ---- in words


def _document(token: "Token") -> dict[str, Any]:
    def at(moment: float | None) -> str | None:
        return None if moment is None else iso(moment)

    return {
        "name": token.name,
        "id": token.token_id,
        "state": _state(token),
        "created_at": iso(token.created_at),
        "expires_at": at(token.grants.expires_at),
        "revoked_at": at(token.revoked_at),
        "grants": {name: value for name, value in token.grants.to_dict().items() if name != "expires_at"},
    }


def _state(token: "Token") -> str:
    fault = token.fault(SYSTEM_CLOCK.wall())
    if fault is not None:
        return fault
    expires_at = token.grants.expires_at
    return "holds" if expires_at is None else f"until {_day(expires_at)}"


def _scope(token: "Token") -> str:
    """The permissions as short text."""
    from remit.server.tokens import Permission

    grants = token.grants
    # other permissions do not concern agents
    asks = grants.agents is not None or grants.permissions & {Permission.DELEGATE, Permission.SERVE}
    whom = f" {', '.join(grants.agents) if grants.agents is not None else 'any agent'}" if asks else ""
    said = ["/".join(sorted(grants.permissions)) + whom]
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


def _day(moment: float) -> str:
    return datetime.fromtimestamp(moment).astimezone().strftime("%Y-%m-%d %H:%M")
