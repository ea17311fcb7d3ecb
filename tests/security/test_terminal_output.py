"""Output from a cloned project or an agent cannot control the terminal: escape sequences are removed, whichever file they come from."""

import json
import re
from pathlib import Path

import pytest

from remit import Failed, Remit, agent
from support import cli

EVIL = "\x1b]0;owned\x07\x1b[2J\x1b[8mhidden\x9b31m\u202e"
CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029]")
COMMANDS = [
    ("config",), ("config", "--all"), ("policy",), ("policy", "--schema"), ("policy", "check"), ("policy", "explain", "last"),
    ("audit",), ("agents",), ("agents", "plain"), ("history",), ("show", "last"), ("tree", "last"),
    ("events", "last"), ("roles",), ("models",), ("trust",), ("errors",), ("board",), ("delegate", "plain"), ("delegate", EVIL),
    ("workspaces",), ("metrics",), ("install", "claude", "--dry-run"), ("token",),
]  # fmt: skip


@agent("plain", description=f"Says little {EVIL}")
def plain(text: str = "") -> str:
    return EVIL + text


@agent("broken", description="Fails")
def broken() -> str:
    raise Failed(f"It does not work: {EVIL}", advice=f"Do {EVIL}")


@pytest.fixture
async def project(tmp_path: Path) -> Path:
    """A hostile clone with a finished delegation."""
    quoted = json.dumps(EVIL).replace("\x9b", "\\u009b")
    (tmp_path / ".remit" / "agents").mkdir(parents=True)
    (tmp_path / "remit.toml").write_text(
        f"model = {quoted}\nsearch.providers = [{quoted}]\naccept_env = [{quoted}]\n"
        f"[agents.other]\ncommand = [{quoted}]\ndescription = {quoted}\n[agents.odd]\ncommnd = [{quoted}]\n"
    )  # fmt: skip
    (tmp_path / ".remit" / "agents" / "helper.md").write_text(f"---\nname: helper\ndescription: {quoted}\n---\nWork. {EVIL}\n")
    (tmp_path / ".remit" / "policy.cedar").write_text(
        f'// {EVIL}\n@id("odd {EVIL}")\n@because("because {EVIL}")\npermit (principal, action, resource);\n'
        f'@id("no {EVIL}")\n@because("because {EVIL}")\nforbid (principal, action == Action::"broken", resource);\n'
    )  # fmt: skip
    (tmp_path / ".mcp.json").write_text(json.dumps({"mcpServers": {EVIL: {"command": EVIL}}}))
    async with Remit.open(tmp_path, agents=[plain, broken], settings={"model": "x:y"}) as remit:
        assert (await remit.delegate("plain", text=EVIL)).ok
        assert not (await remit.delegate("broken")).ok
    with (tmp_path / ".remit" / "audit.jsonl").open("a") as log:
        log.write(
            json.dumps({"event": "decided", "verdict": EVIL, "caller": EVIL, "action": EVIL, "rules": [EVIL], "sessions": [EVIL]}) + "\n"
        )
    return tmp_path


def test_unapproved_project_prints_no_escape_sequences(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("REMIT_TRUST")
    with (project / "remit.toml").open("a") as settings:
        settings.write(f'[agents."{EVIL.encode("unicode_escape").decode().replace("x", "u00")}"]\ncommand = ["true"]\n')
    (project / ".remit" / "agents" / f"{EVIL.replace('/', '')}.py").write_text("raise SystemExit")
    for command in (("trust",), ("agents",), ("config",), ("doctor",), ("history",), ("delegate", "plain")):
        done = cli.run(*command, cwd=project)
        assert not CONTROLS.search(done.stdout + done.stderr), (command, (done.stdout + done.stderr)[:2000])


def test_commands_print_no_escape_sequences(project: Path) -> None:
    for command in COMMANDS:
        done = cli.run(*command, cwd=project)
        printed = done.stdout + done.stderr
        assert not CONTROLS.search(printed), (command, printed[:2000])
        assert "Traceback" not in printed, (command, printed[-2000:])
    for command in ("config", "policy", "audit", "history"):
        assert not CONTROLS.search(cli.run(command, "--json", cwd=project).stdout)


def test_invalid_setting_is_reported_without_escape_sequences(tmp_path: Path) -> None:
    (tmp_path / "remit.toml").write_text('model = 5\n"\\u001b[2J" = 1\nsearch.searxng_url = "\\u001b[2J"\n')
    for command in ("config", "agents", "doctor", "history"):
        done = cli.run(command, cwd=tmp_path)
        assert not CONTROLS.search(done.stdout + done.stderr), command
