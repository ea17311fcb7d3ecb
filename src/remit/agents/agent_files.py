"""Agent files as text: a Markdown page with YAML front matter in the formats of remit, Claude Code and OpenCode."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from frontmatter.default_handlers import YAMLHandler

from remit.agents.definition import COMMA, Declaration, DefinitionTable
from remit.agents.project_files import bytes_of
from remit.core.agents import agent_name
from remit.core.errors import Misused
from remit.system.trust import ProjectTrust

LARGEST_BYTES = 1024 * 1024
"""Larger files are not instructions."""
LARGEST_HEAD = 64 * 1024
DEEPEST = 50
_BOUNDARY = re.compile(r"^---[ \t]*$", re.MULTILINE)
_PLAIN_LINE = re.compile(r"^([A-Za-z][\w-]*):[ \t]+([^\s\"'\[{|>&*!%@`#].*)$")
_HINT_LINE = re.compile(r"^(argument-hint):[ \t]+([^\"'].*)$")
"""`[number] [words]`, common in command files, is not valid YAML."""
_YAML_ERRORS = (ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RecursionError)
"""Exceptions of the YAML library, beside its own errors, for values that look like dates, numbers or booleans but are invalid."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    path: Path
    head: Mapping[str, Any]
    body: str


class _Loader(yaml.SafeLoader):
    _depth = 0

    def compose_node(self, parent: Any, index: Any) -> Any:
        """Aliases are refused: they are not needed here, and a few lines of them can expand beyond any memory."""
        if self.check_event(yaml.AliasEvent) or self._depth == DEEPEST:
            problem = "it is nested too deeply" if self._depth == DEEPEST else "aliases (*name) are not supported"
            raise yaml.composer.ComposerError(None, None, problem, self.peek_event().start_mark)  # type: ignore[no-untyped-call]
        self._depth += 1
        node = super().compose_node(parent, index)
        self._depth -= 1
        return node

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        """Duplicate keys are refused: people and remit could read different values."""
        seen = set()
        for key, _ in node.value if isinstance(node, yaml.MappingNode) else ():
            if isinstance(key, yaml.ScalarNode) and key.value in seen:
                raise yaml.constructor.ConstructorError(None, None, f"{key.value[:60]} is given twice", key.start_mark)
            seen.add(key.value if isinstance(key, yaml.ScalarNode) else None)
        return super().construct_mapping(node, deep)


def read_page(path: Path, root: Path, trust: ProjectTrust | None = None) -> Page | None:
    """The page at `path`; None without front matter, so not an agent. Raises `Misused` with the fault; `NotApproved` if `trust` does not
    allow its content."""
    return page_of(_text_of(path, root, trust), path)


def read_with_or_without_head(path: Path, root: Path, trust: ProjectTrust | None = None) -> Page:
    """The page at `path`; without front matter all of it is body. Raises `Misused`, like `read_page`."""
    text = _text_of(path, root, trust)
    return page_of(text, path) or Page(path=path, head={}, body=text.strip())


def page_of(text: str, path: Path) -> Page | None:
    """Parse a text as the page at `path`, like `read_page`. Raises `Misused`."""
    head, body = _split_head(text)
    if head is None:
        return None
    if len(head) > LARGEST_HEAD:
        raise Misused(f"its front matter has {len(head)} characters; the maximum is {LARGEST_HEAD}.")
    said = _parse_head(head)
    if not isinstance(said, dict | None):
        raise Misused(f"the front matter must be keys and values, not a {type(said).__name__}.")
    return Page(path=path, head={str(key): value for key, value in (said or {}).items()}, body=body.strip())


def _text_of(path: Path, root: Path, trust: ProjectTrust | None) -> str:
    data = bytes_of(path, root, LARGEST_BYTES, trust)
    if b"\0" in data:
        raise Misused("it is not text.")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise Misused("it is not UTF-8 text.") from None
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _split_head(text: str) -> tuple[str | None, str]:
    handler = YAMLHandler(fm_boundary=_BOUNDARY)
    if not handler.detect(text):
        return None, text
    try:
        head, body = handler.split(text)
    except ValueError:
        raise Misused("its front matter does not end with a line of three dashes.") from None
    return head.removeprefix("\n"), body


def _parse_head(head: str) -> Any:
    """Parse as YAML; if that fails, treat one-line values as plain text.

    `description: Use this when: …` is not valid YAML, but occurs in many files, and other tools accept it."""
    first: Exception | None = None
    for text in (head, _quote_values(head)):
        try:
            return yaml.load(text, _Loader)
        except (yaml.YAMLError, *_YAML_ERRORS) as error:
            first = first or error
    raise Misused(_describe_fault(first))


def _quote_values(head: str) -> str:
    lines = []
    for line in head.split("\n"):
        line = line.rstrip(" \t")
        plain = _PLAIN_LINE.match(line)
        if plain and not (": " in plain[2] or " #" in plain[2] or plain[2].endswith(":")):
            plain = None
        if plain := plain or _HINT_LINE.match(line):
            value = plain[2].replace("'", "''")
            line = f"{plain[1]}: '{value}'"
        lines.append(line)
    return "\n".join(lines)


def _describe_fault(error: Exception | None) -> str:
    mark = getattr(error, "problem_mark", None)
    problem = getattr(error, "problem", None) or str(error) or type(error).__name__
    line = f"line {mark.line + 2}: " if mark is not None else ""
    return f"{line}its front matter is not YAML: {str(problem)[:200]}."


# ---- the keys of each vendor


OURS = "remit"
_TURNS = ("maxTurns", "steps", "maxSteps")
"""Vendors' names of `requests`."""
_READS = frozenset({"name", "description", "model", "tools", "disallowedTools", *_TURNS, OURS})
_OPENCODE_READS = frozenset({"description", "model", "permission", "tools", "disable", "temperature", *_TURNS, OURS})
_WIDENING = frozenset({
    "kind", "group", "a2a", "remote", "token_variable", "ca_file", "command", "options", "environment", "pass_environment", "allow",
    "delegates", "merge", "isolation", "built_in", "retries", "hosts", "effects",
})  # fmt: skip
"""Keys that would give an agent more rights than its executor. Folders of other tools come with any clone and are read before review."""


def ours(page: Page) -> Declaration | None:
    """`.remit/agents/NAME.md`: the file name is the default name. Keys of remit are under `remit:`."""
    misplaced = sorted((set(DefinitionTable.model_fields) - {"description", "model", "tools"}) & set(page.head))
    if misplaced:
        raise Misused(f"{misplaced[0]} belongs under {OURS}:.")
    name = _name(page.head.get("name", page.path.stem))
    return _declaration_of(page, name, _tools(page, "tools"), _tools(page, "disallowedTools") or ())


def claude(page: Page) -> Declaration | None:
    """`.claude/agents/**/*.md`: a file without a name is not an agent; `tools` lists the allowed tools, default all."""
    if "name" not in page.head:
        if page.head.keys() & {"description", "tools", "model"}:
            raise Misused("it has no name, so it is not an agent. Write name: … into its front matter.")
        return None
    check_guest(page)
    name = _name(page.head["name"])
    return _declaration_of(page, name, _tools(page, "tools"), _tools(page, "disallowedTools") or (), is_guest=True)


def opencode(page: Page) -> Declaration | None:
    """`.opencode/agent(s)/**/*.md`: named by its file; `permission` and (older) `tools` deny tools."""
    if page.head.get("disable") is True:
        return None
    check_guest(page)
    tools = page.head.get("tools")
    off = [str(name) for name, is_on in tools.items() if is_on is False] if isinstance(tools, dict) else []
    return _declaration_of(page, _name(page.path.stem), None, (*off, *_denied_tools(page)), reads=_OPENCODE_READS, is_guest=True)


def _declaration_of(
    page: Page,
    name: str,
    tools: tuple[str, ...] | None,
    without: tuple[str, ...],
    *,
    reads: frozenset[str] = _READS,
    is_guest: bool = False,
) -> Declaration:
    head = page.head
    own = {} if head.get(OURS) is None else head[OURS]
    if not isinstance(own, dict):
        raise Misused(f"{OURS} must contain keys and values.")
    if tools is not None and "tools" in own:
        raise Misused(f"tools is both in the front matter and under {OURS}: keep one of them.")
    table = {key: head[key] for key in ("description", "model") if head.get(key) is not None}
    vendors = {**dict.fromkeys(_TURNS, "requests"), "temperature": "temperature"}
    table |= {vendors[key]: head[key] for key in reversed(vendors) if key in reads and head.get(key) is not None}
    table |= {str(key): value for key, value in own.items()}
    if page.body:
        table["instructions"] = page.body
    return Declaration(name=name, table=table, source=str(page.path), tools=tools, without=without, is_file=True, is_guest=is_guest)


def check_guest(page: Page) -> None:
    """A file of another tool cannot extend the rights of its executor. Raises `Misused`."""
    own = page.head.get(OURS)
    keys = {str(key): value for key, value in own.items()} if isinstance(own, dict) else {}
    if wide := sorted(_WIDENING & keys.keys()) or (["workspace"] if keys.get("workspace") == "shared" else []):
        raise Misused(
            f"{wide[0]} would give it more than its executor has, which a file in this folder cannot: "
            "say it in remit.toml or in .remit/agents.",
        )


def _name(name: Any) -> str:
    if not isinstance(name, str):
        raise Misused(f"name must be text, not a {type(name).__name__}.")
    return agent_name(name.strip())


def _tools(page: Page, key: str) -> tuple[str, ...] | None:
    """`Read, Bash(git *)` or a list; empty, or `*` in `tools`, means all."""
    said = page.head.get(key)
    if isinstance(said, str):
        said = [one.strip() for one in COMMA.split(said)]
    if said is None or (said == ["*"] and key == "tools"):
        return None
    if not isinstance(said, list) or not all(isinstance(one, str) for one in said):
        raise Misused(f"{key} must be names with commas between them, or a list of names.")
    return tuple(one.strip() for one in said if one.strip())


def _denied_tools(page: Page) -> tuple[str, ...]:
    """`edit: deny`, or by use: `bash: {"git push": deny}`. `ask` leaves it to the executor's own list."""
    said = page.head.get("permission")
    if said is None or isinstance(said, str):
        return ("*",) if said == "deny" else ()
    if not isinstance(said, dict):
        raise Misused("permission must name tools and allow, ask or deny for each.")
    denied: list[str] = []
    for tool, answer in said.items():
        if isinstance(answer, dict):
            denied += [str(tool) if use == "*" else f"{tool}({use})" for use, one in answer.items() if one == "deny"]
        elif answer == "deny":
            denied.append(str(tool))
    return tuple(denied)
