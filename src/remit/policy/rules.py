"""The rules of a project: their source, and their Cedar text parsed into rules with annotations."""

import contextlib
import hashlib
import json
import logging
import os
import re
import stat
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

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
_STATEMENT = re.compile(r'(?:\s+|//[^\r\n]*+)*+((?:"(?:\\.|[^"\\])*+"|//[^\r\n]*+|[^;"/]|["/])*?(?:;|\Z))', re.DOTALL)
"""Comments before a rule, and the rule."""
LARGEST_BYTES = 1_000_000
"""Of a file of rules."""
MOST_BRACKETS, MOST_CHARACTERS = 200, 8000
"""Of a rule: Cedar's parser ends the process at rules that are nested too deeply."""
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


class Rule(NamedTuple):
    name: str
    line: int
    is_permit: bool
    annotations: Mapping[str, str]
    actions: frozenset[str] | None
    """The actions and groups it is about; None: all."""
    mentions: frozenset[str]
    """The facts that its outcome can depend on; `*` for all of them."""
    body: Mapping[str, Any]
    """As Cedar's JSON has it."""
    text: str
    """The original text."""

    @property
    def names_resource(self) -> bool:
        return self.body["resource"]["op"] != "All" or '{"Var": "resource"}' in json.dumps(self.body)

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
    rules = [_read_rule(found[1], text.count("\n", 0, found.start(1)) + 1) for found in _STATEMENT.finditer(text) if found[1]]
    named: dict[str, Rule] = {}
    for rule in rules:
        if rule.annotations.get("id") and named.setdefault(rule.name, rule) is not rule:
            both = f"at lines {named[rule.name].line} and {rule.line}"
            raise PolicyError(f"Two rules are named {rule.name!r}, {both}.", line=rule.line, advice="Name each once.")
    return rules


def _read_rule(text: str, line: int) -> Rule:
    if len(text) > MOST_CHARACTERS or sum(map(text.count, "([{")) > MOST_BRACKETS:
        raise PolicyError(f"The rule at line {line} is too long or nested too deeply.", line=line, advice="Make several of it.")
    try:
        found = list(json.loads(cedarpy.policies_to_json_str(text))["staticPolicies"].values())
        body: dict[str, Any] = found[0]
        mentions = frozenset(_mentions_of(body.get("conditions", [])))
    except (ValueError, RecursionError) as error:
        advice = "Correct it; `remit policy check` tells when it is right."
        raise PolicyError(f"The rule that begins at line {line} cannot be read: {error}.", line=line, advice=advice) from None
    except IndexError:
        words = "Policy templates (?principal, ?resource) are not supported."
        raise PolicyError(words, line=line, advice="Name an agent instead.") from None
    annotations = {name: value or "" for name, value in body.get("annotations", {}).items()}
    is_permit = body["effect"] == "permit"
    if "ask" in annotations and not is_permit:
        words = f"The rule at line {line} forbids and asks: @ask belongs to a permit."
        raise PolicyError(words, line=line, advice="Write permit, or drop @ask.")
    return Rule(
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


def _mentions_of(node: Any) -> Iterator[str]:
    """Walks a condition in Cedar's JSON: `context.x` and `context has x` are single facts, a bare `context` is all of them."""
    if isinstance(node, list):
        for one in node:
            yield from _mentions_of(one)
    elif isinstance(node, dict):
        for operator, inside in node.items():
            if operator in (".", "has") and isinstance(inside, dict) and inside.get("left") == {"Var": "context"}:
                yield str(inside["attr"])
            elif operator == "Var" and inside in ("context", "action"):
                yield "*"
            else:
                yield from _mentions_of(inside)


def fill_in(template: str, facts: Mapping[str, Any]) -> str:
    """The text of an annotation, with facts filled in."""

    def filled(match: re.Match[str]) -> str:
        value = facts.get(match[1])
        return match[0] if value is None else str(value)

    return _PLACEHOLDER.sub(filled, template)


# ---- where they come from


FILE = "policy.cedar"
DEFAULT_NAME = "the default policy"


class Rules(NamedTuple):
    name: str
    """Their name in messages."""
    text: str
    fault: PolicyError | None = None
    """Why the text could not be read."""

    @property
    def sha256(self) -> str:
        return hashlib.sha256(self.text.encode("utf-8", "backslashreplace")).hexdigest()


class Source:
    """A given text, which does not change."""

    def __init__(self, text: str) -> None:
        self._text = text

    def read(self) -> Rules:
        return Rules(name="the policy given", text=self._text)

    def has_changed(self) -> bool:
        return False


class FileSource(Source):
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
        if self._seen is None and self._may_be_missing:
            return default_rules()
        try:
            return Rules(name=self._name, text=self._bytes().decode())
        except FileNotFoundError:
            return self._unreadable("there is no such file")
        except (OSError, UnicodeDecodeError) as error:
            return self._unreadable(str(error))

    def _bytes(self) -> bytes:
        """Regular files only, of bounded size: a clone may link to a device, and no pipe is awaited."""
        with os.fdopen(os.open(self._path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as opened:
            data = opened.read(LARGEST_BYTES + 1) if stat.S_ISREG(os.fstat(opened.fileno()).st_mode) else None
        if data is None or len(data) > LARGEST_BYTES:
            raise OSError("it is not a file" if data is None else f"it is larger than {LARGEST_BYTES} bytes")
        return data

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
    return Source(given)
