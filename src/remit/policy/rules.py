"""The rules of a project: their source, and their Cedar text parsed into rules with annotations."""

import contextlib
import errno
import hashlib
import json
import logging
import os
import re
import stat
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import cedarpy

from remit.core.errors import Misused, RemitError
from remit.core.policy import Effect
from remit.system.trust import ADVICE, POLICY, ProjectTrust, approvals_of, approvals_stamp, approved_text, digest_of

log = logging.getLogger("remit.policy")

EFFECTS = frozenset(map(str, Effect))
DELEGATE = "delegate"
"""The group of all actions that are delegations."""
CALLER = "Caller"
CALLERS = ("token:", "cert:")
"""Prefixes of the names of principals that an API authenticated (`server.authenticator`)."""
_WORDS = re.compile(r'//[^\n]*|"(?:\\.|[^"\\])*"|;|[^\s";/]+|/')
DEEPEST = 100
"""Maximum nesting of brackets."""
LONGEST = 8000
"""Maximum length of a rule, without its texts and comments."""
_BRACKETS = re.compile(r"[()\[\]{}]")
_PLACEHOLDER = re.compile(r"\{([a-z_]+)\}")


def action_id(name: str) -> str:
    """An agent named like an effect is not that effect."""
    return f"agent.{name}" if name in EFFECTS or name == DELEGATE else name


def groups_of(action: str, effects: tuple[str, ...], is_delegation: bool) -> tuple[str, ...]:
    """Names that a rule can use for it, besides its own: its target, its effects, and that it is a delegation."""
    target = action.partition(".")[0]
    groups = (target, *effects, *((DELEGATE,) if is_delegation else ()))
    return tuple(dict.fromkeys(group for group in groups if group != target or "." in action))


class PolicyError(Misused):
    """The rules cannot be used."""

    default_code = "POLICY_DENIED"

    def __init__(self, message: str, *, line: int, advice: str = "") -> None:
        super().__init__(message, advice=advice)
        self.line = line


class Mentions(NamedTuple):
    """What the outcome of a rule can depend on, besides the action."""

    facts: frozenset[str] = frozenset()
    everything: bool = False
    """It uses the context as a whole."""
    principal: bool = False
    resource: bool = False

    def __or__(self, other: "Mentions") -> "Mentions":
        return Mentions(
            facts=self.facts | other.facts,
            everything=self.everything or other.everything,
            principal=self.principal or other.principal,
            resource=self.resource or other.resource,
        )


class Rule(NamedTuple):
    number: str
    """Cedar's number: policy0, policy1, …"""
    name: str
    line: int
    is_permit: bool
    annotations: Mapping[str, str]
    actions: frozenset[str] | None
    """The actions and groups it is about; None: all."""
    mentions: Mentions
    body: Mapping[str, Any]
    """As Cedar's JSON has it."""
    text: str
    """The original text."""

    @property
    def asks(self) -> bool:
        return self.is_permit and "ask" in self.annotations

    def covers(self, action: str, groups: Sequence[str]) -> bool:
        """Whether it applies to this action: by its name or, with `in`, by one of its groups."""
        if self.actions is None or action in self.actions:
            return True
        return self.body["action"]["op"] == "in" and not self.actions.isdisjoint(groups)


def read_rules(text: str) -> list[Rule]:
    """In text order. Raises `PolicyError`."""
    spans = list(_statements(text))
    bodies = _parse(text, spans)
    numbered = sorted(bodies, key=lambda number: int(number.removeprefix("policy")))
    rules = [
        _rule(number, bodies[number], _line(text, start), text[start:end]) for number, (start, end) in zip(numbered, spans, strict=True)
    ]
    names: dict[str, int] = {}
    for rule in (rule for rule in rules if rule.annotations.get("id")):
        if rule.name in names:
            raise PolicyError(
                f"Two rules are named {rule.name!r}, at lines {names[rule.name]} and {rule.line}.", line=rule.line, advice="Name each once."
            )
        names[rule.name] = rule.line
    return rules


def _parse(text: str, spans: Sequence[tuple[int, int]]) -> dict[str, dict[str, Any]]:
    try:
        document = json.loads(cedarpy.policies_to_json_str(text))
    except ValueError as error:
        raise _parse_error(text, str(error)) from None
    except RecursionError:
        raise PolicyError("A rule has hundreds of nested operators.", line=1, advice="Split it into several rules.") from None
    if document.get("templates"):
        raise PolicyError("Policy templates (?principal, ?resource) are not supported.", line=1, advice="Name an agent instead.")
    bodies: dict[str, dict[str, Any]] = document.get("staticPolicies", {})
    again = cedarpy.policies_to_json_str("\n".join(text[start:end] for start, end in spans))
    if len(bodies) != len(spans) or json.loads(again)["staticPolicies"] != bodies:  # the evaluated rules must be the written ones
        raise PolicyError("It is unclear where its rules begin and end.", line=1, advice="End each rule with one semicolon.")
    return bodies


def _line(text: str, at: int) -> int:
    return text.count("\n", 0, at) + 1


def _statements(text: str) -> Iterator[tuple[int, int]]:
    """The range of each rule; comments and quoted text are skipped.

    Raises `PolicyError` for rules beyond the limits of Cedar's parser, which would end the process."""
    start: int | None = None
    depth = length = 0
    for word in _WORDS.finditer(text):
        if word[0].startswith("//"):
            continue
        if start is None:
            start, depth, length = word.start(), 0, 0
        if word[0] == ";":
            yield start, word.end()
            start = None
        elif word[0][0] != '"':
            depth, deepest = _nested(word[0], depth)
            length += len(word[0])
            if deepest > DEEPEST or length > LONGEST:
                what = f"brackets more than {DEEPEST} deep" if deepest > DEEPEST else f"more than {LONGEST} characters"
                raise PolicyError(
                    f"The rule at line {_line(text, start)} has {what}.", line=_line(text, start), advice="Make several of it."
                )
    if start is not None:
        yield start, len(text)


def _nested(word: str, depth: int) -> tuple[int, int]:
    """The bracket depth after a word, and the maximum within it."""
    deepest = depth
    for sign in _BRACKETS.findall(word):
        depth += 1 if sign in "([{" else -1
        deepest = max(deepest, depth)
    return depth, deepest


def _parse_error(text: str, message: str) -> PolicyError:
    """With its location: Cedar gives no line, so each rule is parsed separately."""
    for start, end in _statements(text):
        try:
            cedarpy.policies_to_json_str(text[start:end])
        except ValueError as error:
            line = _line(text, start)
            return PolicyError(
                f"The rule that begins at line {line} cannot be read: {error}.",
                line=line,
                advice="Correct it; `remit policy check` tells when it is right.",
            )
    return PolicyError(f"The rules cannot be read: {message}.", line=1, advice="`remit policy check` tells when they are right.")


def _rule(number: str, body: Mapping[str, Any], line: int, text: str) -> Rule:
    annotations = {name: value or "" for name, value in body.get("annotations", {}).items()}
    is_permit = body["effect"] == "permit"
    if "ask" in annotations and not is_permit:
        raise PolicyError(
            f"The rule at line {line} forbids and asks: @ask belongs to a permit.", line=line, advice="Write permit, or drop @ask."
        )
    mentions = Mentions(
        principal=body["principal"].get("op") != "All",
        resource=body["resource"].get("op") != "All",
    )
    for condition in body.get("conditions", ()):
        mentions |= _mentions_of(condition.get("body"))
    return Rule(
        number=number,
        name=annotations.get("id") or f"line {line}",
        line=line,
        is_permit=is_permit,
        annotations=annotations,
        actions=_actions(body["action"]),
        mentions=mentions,
        body=body,
        text=text,
    )


def _actions(scope: Mapping[str, Any]) -> frozenset[str] | None:
    if scope.get("op") == "All":
        return None
    listed = scope.get("entities") or [scope["entity"]]
    return frozenset(str(entity.get("__entity", entity)["id"]) for entity in listed)


def _mentions_of(condition: Any) -> Mentions:
    """Walks a condition in Cedar's JSON: `context.x` and `context has x` are single facts, a bare `context` is all of them."""
    facts: set[str] = set()
    bare: set[str] = set()
    stack = [condition]
    while stack:
        node = stack.pop()
        if isinstance(node, list):
            stack += node
        elif isinstance(node, dict) and "Var" in node:
            bare.add(str(node["Var"]))
        elif isinstance(node, dict) and "Value" not in node:
            for operator, inside in node.items():
                if operator in (".", "has") and inside.get("left") == _CONTEXT:
                    facts.add(str(inside["attr"]))
                else:
                    stack += inside.values() if isinstance(inside, dict) else [inside]
    return Mentions(
        facts=frozenset(facts),
        everything=not bare.isdisjoint(("context", "action")),
        principal="principal" in bare,
        resource="resource" in bare,
    )


_CONTEXT = {"Var": "context"}


def fill_in(template: str, facts: Mapping[str, Any]) -> str:
    """The text of an annotation, with facts filled in."""

    def filled(match: re.Match[str]) -> str:
        value = facts.get(match[1])
        return match[0] if value is None else str(value)

    return _PLACEHOLDER.sub(filled, template)


FILE = "policy.cedar"
DEFAULT_NAME = "the default policy"
LARGEST_BYTES = 1_000_000


class Rules(NamedTuple):
    name: str
    """Their name in messages."""
    text: str
    fault: PolicyError | None = None
    """Why the text could not be read."""

    @property
    def sha256(self) -> str:
        return hashlib.sha256(self.text.encode("utf-8", "backslashreplace")).hexdigest()


class Source(Protocol):
    def read(self) -> Rules: ...
    def has_changed(self) -> bool: ...


class TextSource:
    """A given text, which does not change."""

    def __init__(self, text: str, name: str = "the policy given") -> None:
        self._rules = Rules(name=name, text=text)

    def read(self) -> Rules:
        return self._rules

    def has_changed(self) -> bool:
        return False


class FileSource:
    """A file, checked repeatedly; if it may be missing, the default applies until it exists."""

    def __init__(self, path: Path, name: str, *, may_be_missing: bool) -> None:
        self._path = path
        self._name = name
        self._may_be_missing = may_be_missing
        self._seen: tuple[int, ...] | None = None

    def has_changed(self) -> bool:
        return self._look() != self._seen

    def _look(self) -> tuple[int, ...] | None:
        """None if it does not exist; a dangling link counts as existing."""
        try:
            seen = os.stat(self._path)
        except OSError:
            return () if os.path.lexists(self._path) else None
        return seen.st_mtime_ns, seen.st_ctime_ns, seen.st_size, seen.st_ino

    def read(self) -> Rules:
        self._seen = self._look()
        try:
            data = self._bytes()
        except FileNotFoundError:
            if self._may_be_missing and not os.path.lexists(self._path):
                return default_rules()
            return self._unreadable("there is no such file")
        except OSError as error:
            return self._unreadable(error.strerror or str(error))
        if len(data) > LARGEST_BYTES:
            return self._unreadable(f"it is larger than {LARGEST_BYTES} bytes")
        try:
            return Rules(name=self._name, text=data.decode())
        except UnicodeDecodeError as error:
            line = data[: error.start].count(b"\n") + 1
            return self._unreadable(f"line {line} is not UTF-8")

    def _bytes(self) -> bytes:
        """Regular files only: a pipe or a device of that name is not awaited."""
        descriptor = os.open(self._path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(descriptor, "rb") as opened:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise OSError(errno.EINVAL, "it is not a file")
            return opened.read(LARGEST_BYTES + 1)

    def _unreadable(self, why: str) -> Rules:
        fault = PolicyError(f"{self._name} cannot be read: {why}.", line=1, advice="Fix or remove it.")
        return Rules(name=self._name, text="", fault=fault)


class ApprovedFile(FileSource):
    """The approved policy of a project. Until changed rules are approved, the previously approved ones apply; in a project without any, the
    default."""

    def __init__(self, folder: Path, trust: ProjectTrust) -> None:
        super().__init__(folder / FILE, f"{folder.name}/{FILE}", may_be_missing=True)
        self._trust = trust
        self._approvals: tuple[int, ...] | None = None
        self._in_force: Rules | None = None

    def has_changed(self) -> bool:
        return super().has_changed() or approvals_stamp() != self._approvals

    def read(self) -> Rules:
        self._approvals = approvals_stamp()
        rules, approved = super().read(), self._approved_digest()
        is_missing = rules.fault is None and rules.name == DEFAULT_NAME
        if rules.fault is not None or (approved is None if is_missing else approved == rules.sha256):
            self._in_force = rules
        elif self._in_force is None:
            self._in_force = self._rules_of(approved)
        elif self._in_force.sha256 != rules.sha256:
            log.warning("%s changed and is not approved: the rules before stay in force. %s", self._name, ADVICE)
        return self._in_force

    def _approved_digest(self) -> str | None:
        """The current approval; the one at opening if approvals are unreadable or the caller passed them."""
        if self._in_force is not None and not self._trust.is_given:
            with contextlib.suppress(RemitError):
                return approvals_of(self._trust.root).get(POLICY)
        return (self._trust.approved or {}).get(POLICY)

    def _rules_of(self, digest: str | None) -> Rules:
        if digest is None:
            return default_rules()
        text = approved_text(digest)
        if text is None or digest_of(text.encode()) != digest:
            return self._unreadable("it changed since it was approved, and the approved rules are not kept")
        return Rules(name=self._name, text=text)


def default_text() -> str:
    return Path(__file__).with_name("default.cedar").read_text("utf-8")


def default_rules() -> Rules:
    return Rules(name=DEFAULT_NAME, text=default_text())


def project_file(folder: Path, trust: ProjectTrust | None = None) -> FileSource:
    """For the project whose `.remit` is `folder`: with `trust` the rules in force, without it those of the file, approved or not."""
    if trust is not None and trust.approved is not None:
        return ApprovedFile(folder, trust)
    return FileSource(folder / FILE, f"{folder.name}/{FILE}", may_be_missing=True)


def source_of(given: str | Path) -> Source:
    """A path, or rules as text: text contains a semicolon, as every rule ends with one."""
    if isinstance(given, Path) or (";" not in given and given.strip()):
        return FileSource(Path(given), str(given), may_be_missing=False)
    return TextSource(given)
