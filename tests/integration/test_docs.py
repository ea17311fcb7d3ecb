"""The documents are true: tables match the program, links resolve, named modules exist, the site builds."""

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

from documents import DOCUMENTS, ROOT

from remit import EventKind, Remit, Request, Settings, StopReason
from remit.cli.exits import MEANINGS
from remit.core.context import DelegationFacts
from remit.core.events import STEPS
from remit.core.settings import DEFAULT_TIMEOUTS
from remit.system.settings_files import describe
from support.cli import every_command
from support.error_codes import CODES

LINK = re.compile(r"\]\((?!https?:|mailto:)([^)#\s]+)(?:#[^)\s]*)?\)")


def table(document: Path, heading: str = "") -> list[list[str]]:
    """The rows of the first table below a heading, without its header and code marks."""
    text = document.read_text()
    if heading:
        text = text.partition(f"\n{heading}\n")[2]
        assert text, f"{document.name} has no {heading}"
    rows = re.search(r"^\|.*\n\|[-| ]+\|\n((?:\|.*\n)+)", text, flags=re.MULTILINE)
    assert rows is not None
    return [[cell.strip().replace("`", "") for cell in row.strip("|").split(" | ")] for row in rows[1].splitlines()]


# ---- the reference


def test_exactly_the_settings_are_documented_with_defaults() -> None:
    documented = {row[0]: row[1] for row in table(ROOT / "docs/reference/settings.md")}
    known: dict[str, str] = {"slots_per_agent.NAME": "none", "agents.NAME.KEY": "none", "roles.NAME": "none"}
    known |= {"models.NAME.KEY": "none", "prices.NAME.KEY": "none"}
    for key, value, _ in describe(Settings()):
        name, _, rest = key.partition(".")
        match name:
            case "timeouts":
                known[f"timeouts.NAME.{rest.rpartition('.')[2]}"] = "see below"
            case "routing":
                known["routing.COMMAND"] = "see below"
            case _:
                known[key] = _displayed(value)
    assert documented == known


def _displayed(value: Any) -> str:
    if value is None:
        return "none"
    if isinstance(value, list):
        return ", ".join(value)
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:g}" if isinstance(value, float) else str(value)


def test_every_default_timeout_is_documented() -> None:
    rows = table(ROOT / "docs/reference/settings.md", "## Timeouts")
    assert {name: (float(default), float(most)) for name, default, most in rows} == {
        name: (limits.default_seconds, limits.maximum_seconds) for name, limits in DEFAULT_TIMEOUTS.items()
    }


def test_exactly_the_commands_options_and_exit_codes_are_documented() -> None:
    text = (ROOT / "docs/reference/cli.md").read_text()
    sections = re.split(r"^## `remit (\w+)[^`]*`\n", text, flags=re.MULTILINE)[1:]
    documented = {
        name: set(re.findall(r"^\| `(--[\w-]+)`", body, flags=re.MULTILINE))
        for name, body in zip(sections[::2], sections[1::2], strict=True)
    }
    commands = every_command()
    shared = {"--root", "--json", "--trust", "--help"}
    known = {
        name: {option for p in command.params if not getattr(p, "hidden", False) for option in p.opts if option.startswith("--")}
        for name, command in commands.items()
    }
    assert all({"--root", "--json", "--trust"} <= options for options in known.values())
    assert documented == {name: options - shared for name, options in known.items()}
    overview, codes = (table(ROOT / "docs/reference/cli.md", heading) for heading in ("## At a glance", "## Exit codes"))
    assert {row[0].split()[1] for row in overview} == set(commands)
    assert {int(code): meaning for code, meaning in codes} == {code.value: meaning for code, meaning in MEANINGS.items()}


def test_every_error_code_stop_reason_event_and_step_is_documented() -> None:
    reference = ROOT / "docs/reference"
    assert {row[0] for row in table(reference / "errors.md")} == CODES
    assert {row[0] for row in table(reference / "return.md", "## Stop reasons and the registry's state")} == set(StopReason)
    assert {row[0] for row in table(reference / "events.md")} == set(EventKind)
    assert [row[0] for row in table(reference / "events.md", "## Steps")] == list(STEPS)


def test_every_method_of_remit_and_of_the_context_is_documented() -> None:
    from remit import BlockingContext, Context

    rows = table(ROOT / "docs/reference/api.md", "## What can be asked")
    assert {row[0] for row in rows} == set(Request.__dataclass_fields__) - {"agent", "checked"}
    documented = set(re.findall(r"`([a-z_]+)[`(]", (ROOT / "docs/reference/api.md").read_text()))
    for kind in (Remit, Context, DelegationFacts):
        missing = {name for name in vars(kind) if not name.startswith("_")} - documented
        assert missing - {"open", "backend", "unawaited"} == set()
    assert {n for n in vars(Context) if n[0] != "_"} - {"unawaited"} == {n for n in vars(BlockingContext) if n[0] != "_"} - {
        "context",
        "wait",
    }


def test_every_link_target_exists() -> None:
    links = [(document, link) for document in DOCUMENTS for link in LINK.findall(document.read_text())]
    assert [f"{document.name}: {link}" for document, link in links if not (document.parent / link).exists()] == []


def test_every_document_is_reachable_from_the_readme() -> None:
    reached, waiting = set(), [ROOT / "README.md"]
    while waiting:
        document = waiting.pop()
        if document not in reached:
            reached.add(document)
            linked = [(document.parent / link).resolve() for link in LINK.findall(document.read_text())]
            waiting += [path for path in linked if path.suffix == ".md"]
    assert set(DOCUMENTS) <= reached
    index = (ROOT / "docs" / "README.md").read_text()
    assert not [path.name for path in (ROOT / "docs/how-to").glob("*.md") if f"(how-to/{path.name})" not in index]


def test_every_named_module_exists() -> None:
    sources = ROOT / "src/remit"
    packages = "|".join(path.name for path in sources.iterdir() if path.is_dir())
    for document in DOCUMENTS:
        text = document.read_text()
        for name in set(re.findall(rf"`(remit\.(?:{packages})\.[a-z_]+)", text)):
            assert importlib.util.find_spec(name) is not None, f"{document.name}: {name}"
        for name in set(re.findall(rf"`((?:{packages})/[a-z0-9_/]+\.py)`", text)):
            assert (sources / name).exists(), f"{document.name}: {name}"


def test_readme_and_architecture_are_short_and_name_every_package() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) <= 150
    text = (ROOT / "ARCHITECTURE.md").read_text()
    assert len(text.splitlines()) <= 200
    named = set(re.findall(r"`((?:\w+/)+\w+\.py)`", text))
    assert [name for name in sorted(named) if not (ROOT / "src/remit" / name).exists() and not (ROOT / name).exists()] == []
    listed = {row[0] for row in table(ROOT / "ARCHITECTURE.md", "## Packages")}
    assert listed == {path.parent.name for path in (ROOT / "src/remit").glob("*/__init__.py")} | {"app.py"}


def test_site_builds_without_broken_links_or_external_resources(tmp_path: Path) -> None:
    build = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "-d", str(tmp_path)]
    done = subprocess.run(build, cwd=ROOT, env=os.environ | {"NO_MKDOCS_2_WARNING": "1"}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    pages = list(tmp_path.rglob("*.html"))
    assert len(pages) > len(list((ROOT / "docs").rglob("*.md")))
    loaded = re.compile(r"""<(?:script|img|iframe)[^>]+src=["']?https?:|<link[^>]+href=["']?https?:""")
    assert not [page.name for page in pages if loaded.search(page.read_text())]
