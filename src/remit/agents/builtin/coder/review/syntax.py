"""Whether files that were changed can still be read: Python, JSON, YAML, TOML by their own parsers, other languages by tree-sitter.

Only where they could be read before, or are new: what was broken already is not this change's doing.
"""

import ast
import json
import sys
import tomllib
import warnings
from collections.abc import Iterator

from remit.agents.builtin.coder.review.code_view import nodes, parse
from remit.agents.builtin.coder.review.findings import Finding, Severity
from remit.agents.builtin.coder.review.languages import is_generated, is_test
from remit.agents.builtin.coder.review.matter import ChangedFile, Matter

LIMIT_CHARACTERS = 1_000_000
Wrong = tuple[int, str]
_BY_TREE = frozenset({"javascript", "typescript", "tsx", "go", "rust", "java"})
OWN_PARSERS = frozenset({"python", "json", "toml", "yaml"})
_COMMENTED_JSON = ("tsconfig", "jsconfig", ".eslintrc", "devcontainer", "settings.json", "launch.json", "extensions.json")


def check(matter: Matter) -> Iterator[Finding]:
    for file in matter.whole:
        if matter.is_late():
            matter.unchecked.append(f"syntax from {file.path} on: time was up")
            return
        if file.after is None or not file.added or len(file.after) > LIMIT_CHARACTERS or is_generated(file.path):
            continue
        if file.is_new and file.language in _BY_TREE:
            continue  # a grammar may be older than the language: it is believed only where it could read the file before
        wrong = fault(file, file.after)
        if wrong is None or (file.before is not None and fault(file, file.before) is not None):
            continue
        near = (wrong[0], wrong[0] - 1, wrong[0] - 2, wrong[0] + 1, wrong[0] + 2)
        line = next((number for number in near if number in file.added), None)
        severity = Severity.HIGH if file.language in ("python", "json", "yaml", "toml") and not is_test(file.path) else Severity.MEDIUM
        yield Finding(
            severity=severity,
            category="correctness",
            rule="syntax",
            file=file.path,
            line=line,
            snippet=file.added.get(line or 0, ""),
            message=f"The file cannot be read any more: {wrong[1]} (line {wrong[0]}).",
            suggestion="Put it right; before the change it could be read." if file.before is not None else "Put it right.",
        )


def fault(file: ChangedFile, text: str) -> Wrong | None:
    return fault_in(file.path, file.language, text)


def is_parsed(path: str, language: str, text: str = "") -> bool:
    """Whether there is a parser for it here, and `fault_in` would use it."""
    if (language == "json" and _may_be_commented(path)) or (language == "yaml" and _is_template(text)):
        return False
    return language in OWN_PARSERS or (language in _BY_TREE and parse(language, "") is not None)


def _may_be_commented(path: str) -> bool:
    return path.rpartition("/")[2].startswith(_COMMENTED_JSON) or path.endswith("settings.json")


def _is_template(text: str) -> bool:
    return "{{" in text or "{%" in text


def fault_in(path: str, language: str, text: str) -> Wrong | None:
    """The line and what is wrong there."""
    match language:
        case "python":
            return _python(text)
        case "json":
            return None if _may_be_commented(path) else _json(text)
        case "toml":
            return _toml(text)
        case "yaml":
            return _yaml(text)
        case known if known in _BY_TREE:
            return _by_tree(language, text)
    return None


def _python(text: str) -> Wrong | None:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            ast.parse(text.encode("utf-8", "replace"))
    except SyntaxError as error:
        return error.lineno or 1, f"{error.msg}, says Python {sys.version_info.major}.{sys.version_info.minor}"
    except (ValueError, RecursionError, MemoryError):
        return 1, "it is nested too deeply, or holds NUL characters"
    return None


def _json(text: str) -> Wrong | None:
    try:
        json.loads(text.removeprefix("\ufeff"))
    except json.JSONDecodeError as error:
        return error.lineno, error.msg
    except (RecursionError, ValueError):
        return 1, "it is nested too deeply, or holds a number with too many digits"
    return None


def _toml(text: str) -> Wrong | None:
    try:
        tomllib.loads(text.replace("\r\n", "\n"))
    except (ValueError, RecursionError) as error:
        words = str(error)
        _, found, rest = words.partition("(at line ")
        number = rest.partition(",")[0]
        return int(number) if found and number.isdigit() and len(number) < 9 else 1, words.partition(" (at")[0][:200]
    return None


def _yaml(text: str) -> Wrong | None:
    import yaml

    if _is_template(text):
        return None  # a template, not YAML yet
    try:
        for _ in yaml.parse(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)):
            pass
    except yaml.MarkedYAMLError as error:
        return (error.problem_mark.line + 1 if error.problem_mark else 1), (error.problem or "it is no YAML")[:200]
    except (yaml.YAMLError, RecursionError, ValueError):
        return 1, "it is no YAML"
    return None


def _by_tree(language: str, text: str) -> Wrong | None:
    tree = parse(language, text)
    if tree is None or not tree.root_node.has_error:
        return None
    for node in nodes(tree.root_node, into=lambda node: node.has_error):
        if node.type == "ERROR" or node.is_missing:
            return node.start_point[0] + 1, f"it does not parse as {language}"
    return None
