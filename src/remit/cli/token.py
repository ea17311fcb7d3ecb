"""`remit token`: tokens for callers of `remit serve`. A running server sees changes at once."""

import getpass
from collections.abc import Callable
from typing import Annotated, Any

from typer import Argument, Option

from remit.cli import arguments
from remit.cli.exits import Exit
from remit.cli.project import Project
from remit.cli.render import duration, moment, say_aside, say_table
from remit.core.deadline import SYSTEM_CLOCK, iso
from remit.policy.audit import note_access
from remit.server.tokens import Grants, Permission, Token, Tokens
from remit.system.files import make_folder


def _option(metavar: str, text: str, **more: Any) -> Any:
    return Option(metavar=metavar, help=text, **more)


def new(
    project: Project,
    name: Annotated[str, Argument(metavar="NAME", help="Name of the caller.")],
    agent: Annotated[list[str] | None, _option("PATTERN", "May use these agents or operations: worker, code*. Default: all.")] = None,
    may: Annotated[list[Permission] | None, _option("WHAT", f"{', '.join(Permission)}; repeatable. Default: delegate.")] = None,
    expires: Annotated[str | None, _option("SPAN", "Expires after 12h, 30d, 1y.")] = None,
    budget: Annotated[
        list[str] | None, _option("KIND=LIMIT", "Of all its requests together: delegations, tokens, cost, alive, seconds.")
    ] = None,
    tree_budget: Annotated[list[str] | None, _option("KIND=LIMIT", "The same, of each tree that it requests.")] = None,
    timeout: Annotated[str | None, _option("SPAN", "The longest timeout that it may request.")] = None,
    depth: Annotated[int | None, _option("N", "The greatest depth of its trees.", min=1)] = None,
) -> Exit:
    """Create a token and print it once: only its hash is kept."""
    lifetime = arguments.seconds(expires, "--expires")
    grants = Grants(
        permissions=frozenset(may or [Permission.DELEGATE]),
        agents=tuple(agent) if agent else None,
        budget=arguments.budget(budget or []),
        tree=arguments.budget(tree_budget or []),
        timeout_seconds=arguments.seconds(timeout, "--timeout"),
        max_depth=depth,
        expires_at=None if lifetime is None else SYSTEM_CLOCK.wall() + lifetime,
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
    found = Tokens(project.folder).all()
    rows = [
        {"name": one.name, "id": one.token_id, "for": _scope(one), "created": moment(one.created_at), "state": _state(one, moment)}
        for one in found
    ]
    empty = "There are no tokens. Create one: remit token new NAME"
    return project.answer({"tokens": [_document(one) for one in found]}, (lambda: say_table(rows, shrinking=("for",))) if rows else empty)


def revoke(project: Project, names: Annotated[list[str], Argument(metavar="NAME", help="Names or ids of tokens.")]) -> Exit:
    """Revoke tokens. A running server refuses them from the next request on."""
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
    try:
        by = getpass.getuser()
    except (KeyError, OSError):  # a user without a name
        by = "?"
    entry = {"event": event, "principal": f"token:{token.name}", "token_id": token.token_id, "by": by}
    note_access(project.folder, {**entry, "because": _scope(token)} if event == "token_made" else entry)


def _document(token: "Token") -> dict[str, Any]:
    grants = token.grants.to_dict()
    expires_at = token.grants.expires_at
    return {
        "name": token.name,
        "id": token.token_id,
        "state": _state(token, iso),
        "created_at": iso(token.created_at),
        "expires_at": None if expires_at is None else iso(expires_at),
        "revoked_at": None if token.revoked_at is None else iso(token.revoked_at),
        "grants": {name: value for name, value in grants.items() if name != "expires_at"},
    }


def _state(token: "Token", words_of: Callable[[float], str]) -> str:
    expires_at = token.grants.expires_at
    return token.fault(SYSTEM_CLOCK.wall()) or ("holds" if expires_at is None else f"until {words_of(expires_at)}")


def _scope(token: "Token") -> str:
    """The permissions and limits as short text."""
    limits = {name: value for name, value in token.grants.to_dict().items() if value and name not in ("permissions", "doing", "expires_at")}
    said = [f"{name.removesuffix('_seconds').replace('_', ' ')} {_words(name, value)}" for name, value in limits.items()]
    return "; ".join(["/".join(sorted(token.grants.permissions)), *said])


def _words(name: str, value: Any) -> str:
    if isinstance(value, dict):
        value = [f"{key} {limit:g}" for key, limit in value.items() if limit is not None]
    if isinstance(value, list | tuple):
        return ", ".join(value)
    return duration(value) if name.endswith("seconds") else f"{value:g}"
