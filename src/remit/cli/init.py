"""`remit init` and `remit config`: write and print the settings of the project. `remit agents --detect --write` adds agents only.

The change is shown as a diff and made after confirmation. Existing lines are not changed, and no host is contacted."""

import asyncio
import os
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import tomlkit
from typer import Option

from remit.agents.coding.detect import DetectedAgent, detect, lines_for
from remit.cli.exits import Exit
from remit.cli.install import FileChange, bytes_of, consent, inside
from remit.cli.models import keys_present
from remit.cli.project import NO_MCP, Project, has_mcp
from remit.cli.render import json_text, say, say_aside, say_table
from remit.core.errors import Misused
from remit.models.providers import PROVIDERS
from remit.system.settings_files import describe
from remit.system.trust import approve_written, load_trust

FILE = "remit.toml"
STARTERS = {"anthropic": "claude-sonnet-5", "openai": "gpt-5", "google": "gemini-2.5-pro"}
"""Default model per provider; the first provider whose key is set is used."""
TITLE = "# Settings of remit for this project. `remit config --all` lists all of them.\n"
EXAMPLES = """
# A language model, with its key in the environment (ANTHROPIC_API_KEY):
# model = "anthropic:claude-sonnet-5"

# A coding agent (`remit agents --detect` finds installed ones):
# [agents.claude]
# kind = "claude"
# allow = ["read", "search", "edit", "execute"]
# workspace = "worktree"
# contain = "auto"

# Any command:
# [agents.tests]
# kind = "command"
# command = ["make", "test"]
"""


def init(project: Project, yes: Annotated[bool, Option("--yes", "-y", help="Do not ask.")] = False) -> Exit:
    """Find coding agents and language models, and write remit.toml. Shows the change and asks; what it writes is approved."""
    found, _ = asyncio.run(detect())
    return write_settings(project, found, yes=yes, with_model=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Additions:
    """Agents and model to add to remit.toml."""

    agents: Mapping[str, Sequence[str]]
    """Lines of each agent, by name."""
    model: str = ""
    notes: tuple[str, ...] = ()

    def applied_to(self, text: str) -> str:
        """The text with the additions; existing lines are unchanged. Raises `ValueError` if they cannot be added."""
        if not text and not self.agents and not self.model:
            return TITLE + EXAMPLES
        model = f'model = "{self.model}"\n' if self.model else ""
        # First, so that no comment is parted from the table below it.
        document = tomlkit.parse(f"{model}\n{text}" if model and text else text or TITLE + model)
        if self.agents and "agents" not in document:
            document["agents"] = tomlkit.table(is_super_table=True)
        agents: Any = document.get("agents")
        for name, lines in self.agents.items():
            declared: Any = tomlkit.parse("\n".join((*lines, "", "")))
            agents[name] = declared["agents"][name]
        made = tomlkit.dumps(document)
        return f"{made.rstrip()}\n" if self.agents else made


def write_settings(project: Project, found: "Sequence[DetectedAgent]", *, yes: bool, with_model: bool) -> Exit:
    """Show the additions to remit.toml, ask, write and approve them."""
    additions = plan(project, found, with_model=with_model)
    file = inside(project.root / FILE, project.root)
    before = bytes_of(file)
    try:
        text = (before or b"").decode()
        changes = bool(additions.agents or additions.model or (with_model and not text.strip()))
        after = additions.applied_to(text).encode() if changes else before
    except ValueError as error:
        advice = "Declare its agents as tables, [agents.NAME], and try again; or add what `remit agents --detect` prints by hand."
        raise Misused(f"Nothing can be added to {file}, which was not changed: {error}.", advice=advice) from None
    change = FileChange(root=project.root, file=file, before=before, after=after)
    if changes and not project.as_json:
        change.show()
    for note in additions.notes if not project.as_json else ():
        say_aside(f"Note: {note}")
    code = consent(project, "Make this change?", yes=yes) if changes else Exit.OK
    is_made, is_approved = changes and code is Exit.OK, False
    done = "" if changes else f"Nothing to add to {FILE}."
    if is_made:
        change.make()
        approve_written(change.root, change.file, change.before, change.after or b"")
        is_approved = not any(item.name.startswith(f"{FILE}:") for item in load_trust(change.root).left_out)
        done = f"Wrote {FILE} and approved it.\nNext: {_next(additions)}"
        if not is_approved:
            done = f"Wrote {FILE}. It has lines that are not approved yet.\nNext: remit trust"
    document = {
        "file": FILE,
        "is_made": is_made,
        "is_approved": is_approved,
        "agents": list(additions.agents),
        "model": additions.model or None,
        "diff": change.diff(),
        "notes": list(additions.notes),
    }
    return project.answer(document, done if done else lambda: None, code)


def _next(additions: Additions) -> str:
    if additions.agents:
        return f'remit delegate {next(iter(additions.agents))} "Say what this project does"'
    return 'remit ask "What does this project do?"' if additions.model else "remit delegate worker.list_files"


def plan(project: Project, found: "Sequence[DetectedAgent]", *, with_model: bool) -> Additions:
    """The additions: findings that no project file declares yet, approved or not."""
    settings = project.settings  # raises if the file is not valid TOML
    written = tomllib.loads((bytes_of(project.root / FILE) or b"").decode())
    known = {*project.directory.names(), *written.get("agents", {})}
    startable = sorted((one for one in found if not one.fault and one.known.name not in known), key=lambda one: not one.login)
    unapproved = [item for item in project.trust.left_out if item.kind == "model"]
    has_model = bool(written.keys() & {"model", "models"} or settings.model or settings.models or unapproved)
    model, notes = _model() if with_model and not has_model else ("", [])
    if without := [one.known.name for one in startable if not one.login]:
        notes.append(f"No login was found for {', '.join(without)}: log in once there, or set the key.")
    if startable and not has_mcp():
        notes.append(f"{NO_MCP}; then add delegates = true to each.")
    return Additions(agents=agent_lines(project, startable), model=model, notes=tuple(notes))


def agent_lines(project: Project, found: "Sequence[DetectedAgent]") -> dict[str, list[str]]:
    is_git = any((folder / ".git").exists() for folder in (project.root, *project.root.parents))
    return {one.known.name: lines_for(one, is_git=is_git, can_delegate=has_mcp()) for one in found}


def _model() -> tuple[str, list[str]]:
    """The model for a key in the environment, and messages about it."""
    for provider, name in STARTERS.items():
        if variable := next((one for one in PROVIDERS[provider].keys if os.environ.get(one, "").strip()), None):
            return f"{provider}:{name}", [f"The model is paid with the key in {variable}; `remit models test` asks it a question."]
    others = [f"{variable} ({providers[0]})" for variable, providers in keys_present().items()]
    return "", [f'Found {", ".join(others)}: name a model of it with model = "PROVIDER:NAME" in {FILE}.'] if others else []


# ---- config


HOW_TO_SET = "Change a setting in remit.toml, in [tool.remit] of pyproject.toml, or as REMIT_KEY in the environment."


def config(project: Project, every: Annotated[bool, Option("--all", help="Include settings with default values.")] = False) -> Exit:
    """Print the settings that differ from their defaults, and where each came from; with --all or --json every setting."""
    listed = [{"key": key, "value": value, "source": source} for key, value, source in describe(project.settings)]
    shown = listed if every else [one for one in listed if one["source"] != "default"]
    rows = [one | {"value": one["value"] if isinstance(one["value"], str) else json_text(one["value"])} for one in shown]
    return project.answer({"root": str(project.root), "settings": listed}, lambda: _print_settings(project, rows, every=every))


def _print_settings(project: Project, rows: list[dict[str, str]], *, every: bool) -> None:
    if rows:
        say_table(rows, shrinking=("value", "source"))
        say()
    if not every:
        say(f"{'Every other' if rows else 'Every'} setting has its default value: `remit config --all` lists them.")
    say(f"Project: {project.root}\n{HOW_TO_SET}")
