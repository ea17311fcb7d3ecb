"""`remit token` makes, lists and revokes tokens; a secret is shown once and never stored."""

from pathlib import Path
from typing import Any

import pytest
from cli_project import remit

from remit import Limits, Refused
from support.server import Authenticator, Credentials, Permission


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / ".remit").mkdir()  # no project above it is used
    return tmp_path


def json_of(folder: Path, *arguments: str) -> Any:
    return remit(folder, *arguments, "--json").json()


def test_token_is_shown_once_listed_and_revoked(project: Path) -> None:
    authenticator = Authenticator(project / ".remit")
    made = remit(
        project, "token", "new", "ci", "--agent", "worker", "--agent", "code*", "--may", "delegate", "--may", "relay", "--expires", "30d",
        *("--budget", "cost=5", "--tree-budget", "tokens=100", "--timeout", "2m", "--depth", "2"),
    )  # fmt: skip
    secret = made.stdout.strip()
    assert made.returncode == 0
    assert "shown once" in made.stderr
    principal = authenticator.authenticate(Credentials(authorization=f"Bearer {secret}"))
    grants = principal.grants
    assert (principal.name, grants.agents, grants.permissions) == ("token:ci", ("worker", "code*"), {Permission.DELEGATE, Permission.RELAY})
    assert (grants.budget, grants.tree) == (Limits(cost=5), Limits(tokens=100))
    assert (grants.timeout_seconds, grants.max_depth) == (120.0, 2)
    listed = remit(project, "token").stdout
    assert "ci" in listed
    assert secret not in listed
    (document,) = json_of(project, "token", "list")["tokens"]
    assert document["state"].startswith("until")
    assert remit(project, "token", "new", "ci").returncode == 5
    assert "Revoked: ci" in remit(project, "token", "revoke", "ci").stdout
    with pytest.raises(Refused):
        authenticator.authenticate(Credentials(authorization=f"Bearer {secret}"))
    assert "prometheus: metrics. It is shown once" in remit(project, "token", "new", "prometheus", "--may", "metrics").stderr
    log = json_of(project, "audit", "--agent", "token:ci")["entries"]
    assert [(entry["event"], entry["token_id"]) for entry in log] == [
        ("token_made", document["id"]),
        ("token_revoked", document["id"]),
    ]
    assert all(secret.encode() not in path.read_bytes() for path in project.rglob("*") if path.is_file())


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("new",), "remit token new"),
        (("new", "a", "--may", "fly"), "see-all"),
        (("new", "a", "--expires", "soon"), "30d"),
        (("new", "a b"), "letters"),
        (("revoke", "unknown"), "remit token list"),
    ],
)
def test_invalid_arguments_are_refused_with_advice(project: Path, arguments: tuple[str, ...], words: str) -> None:
    ended = remit(project, "token", *arguments)
    assert ended.returncode == 2
    assert words in ended.stderr
