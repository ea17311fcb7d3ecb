"""Files written by a model, as text: asked for, read out of its answer, tried on parsers, and asked for once more where they do not parse.

Touches no file: `placing` puts them into the workspace. Used by `generate`.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from remit.agents.builtin.coder.review.languages import language
from remit.agents.builtin.coder.review.syntax import OWN_PARSERS, fault_in, is_parsed
from remit.core.errors import Failed, Unavailable
from remit.flow.context import Context
from remit.models.optional import MATERIAL, Heard, Writes, fenced, hear, object_in

MOST_FILES = 40
MOST_CHARACTERS = 200_000
"""Of one file."""
MOST_IN_ALL = 1_000_000
MOST_SECONDS, SHARE = 600.0, 0.6
_NOT_OURS = frozenset({".git", ".hg", ".svn", ".remit"})
_BLOCK = re.compile(
    r"(?:^|\n)[ \t]*(?:[#*>-]{1,6}[ \t]*)?(?:\d{1,2}[.)][ \t]*)?(?:File(?:name)?:?[ \t]*)?"
    r"[`*]{0,3}([\w./@+-]{1,200}\.\w{1,12})[`*:]{0,4}[ \t]*\n+"
    r"[ \t]*```[\w+.#-]*[ \t]*\n(.*?)\n?[ \t]*```",
    re.DOTALL,
)
_TITLED = re.compile(r"```[\w+.#-]*[ \t]+(?:title=|path=|file=)?[\"']?([\w./@+-]{1,200}\.\w{1,12})[\"']?[ \t]*\n(.*?)\n?```", re.DOTALL)
_INSTRUCTIONS = (
    "You write code from a specification. Write whole files: every import, no placeholders, no ellipses. Follow the conventions of the"
    " project where files of it are shown. Paths are relative to the project, with / between folders. Write only the files that the"
    f' specification needs. {MATERIAL} Answer with JSON alone: {{"files": [{{"path": "…", "content": "…"}}], "notes": "…"}}; notes are one'
    " to three sentences on what was decided."
)
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "files": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {"path": {"type": "string"}, "content": {"type": "string"}},
                "required": ["path", "content"],
                "additionalProperties": False,
            },
        },
        "notes": {"type": "string"},
    },
    "required": ["files", "notes"],
    "additionalProperties": False,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    spec: str
    language: str | None = None
    framework: str | None = None
    listing: Sequence[str] = ()
    """Files that the project has."""
    shown: Mapping[str, str] = field(default_factory=dict)
    """Files that the model is to see."""

    def prompt(self) -> str:
        wishes = [f"{name}: {word}" for name, word in (("Language", self.language), ("Framework", self.framework)) if word]
        parts = [f"## Specification\n\n{self.spec.strip()}", *(["\n".join(wishes)] if wishes else [])]
        if self.listing:
            parts.append("## Files of the project\n\n" + fenced("\n".join(self.listing)))
        parts += [fenced(text, file=path) for path, text in self.shown.items()]
        return "\n\n".join(parts)


@dataclass(frozen=True, slots=True, kw_only=True)
class Composed:
    files: Mapping[str, str]
    by: str
    notes: str = ""
    repaired: bool = False
    faults: Mapping[str, str] = field(default_factory=dict)
    """Of files that do not parse even so: what is wrong."""

    def parses(self, path: str) -> bool | None:
        """None: there is no parser for it here."""
        return None if not is_parsed(path, language(path, self.files[path][:200])) else path not in self.faults

    @property
    def surely_broken(self) -> list[str]:
        """By parsers that cannot be behind the language; a grammar of another may be older than what was written."""
        return [path for path in self.faults if language(path, self.files[path][:200]) in OWN_PARSERS]


async def compose(models: Writes, ctx: Context, order: Order) -> Composed:
    """Raises `Unavailable` where no model answers, and `Failed` where what it wrote cannot be taken."""
    ctx.progress("A model writes the code")
    prompt = order.prompt()
    heard = await _asked(models, ctx, prompt)
    files, notes = read_files(heard.text)
    faults = faults_in(files)
    if not faults:
        return Composed(files=files, by=heard.model, notes=notes)
    ctx.progress(f"{len(faults)} of {len(files)} files do not parse; the model is asked to repair them")
    seconds = min(MOST_SECONDS, SHARE * ctx.remaining)
    again = await hear(models, ctx, _repair(prompt, files, faults), instructions=_INSTRUCTIONS, seconds=seconds, schema=SCHEMA)
    if not again.fault:
        try:
            mended, more = read_files(again.text)
        except Failed:
            return Composed(files=files, by=heard.model, notes=notes, faults=faults)
        # Only what was broken is taken: what parsed before is not given up for an answer to another question.
        files = {**files, **{path: text for path, text in mended.items() if path in faults}}
        return Composed(files=files, by=heard.model, notes=notes or more, repaired=True, faults=faults_in(files))
    return Composed(files=files, by=heard.model, notes=notes, faults=faults)


async def _asked(models: Writes, ctx: Context, prompt: str) -> Heard:
    seconds = min(MOST_SECONDS, SHARE * ctx.remaining)
    heard = await hear(models, ctx, prompt, instructions=_INSTRUCTIONS, seconds=seconds, schema=SCHEMA)
    if heard.fault:
        advice = heard.advice or "See `remit doctor`, or set generate_on to a coding agent."
        raise Unavailable(f"No model wrote the code: {heard.fault}.", code=heard.code, advice=advice)
    return heard


def _repair(prompt: str, files: Mapping[str, str], faults: Mapping[str, str]) -> str:
    told = "\n".join(f"- {path}: {fault}" for path, fault in faults.items())
    broken = "\n\n".join(fenced(files[path], file=path) for path in faults)
    return f"{prompt}\n\n## These files that you wrote do not parse\n\n{told}\n\n{broken}\n\nWrite these files again, whole and repaired."


def read_files(text: str) -> tuple[dict[str, str], str]:
    """Text by path, out of JSON or out of code blocks with a name. Raises `Failed` for what cannot be taken, saying why."""
    found = object_in(text)
    if found is not None and isinstance(found.get("files"), list):
        pairs = [(one.get("path"), one.get("content")) for one in found["files"] if isinstance(one, dict)]
        notes = found.get("notes")
    else:
        pairs, notes = [*_BLOCK.findall(text), *_TITLED.findall(text)], ""
    files: dict[str, str] = {}
    for path, content in pairs:
        if isinstance(path, str) and isinstance(content, str) and content.strip():
            files[checked_path(path)] = content if content.endswith("\n") else f"{content}\n"
    _bound(files)
    return files, notes[:4000] if isinstance(notes, str) else ""


def _bound(files: Mapping[str, str]) -> None:
    if not files:
        raise _untaken("The model wrote no file.", "Say in the specification what files are wanted.")
    if len(files) > MOST_FILES:
        raise _untaken(f"The model wrote {len(files)} files; at most {MOST_FILES} are taken.", "Ask for less at once.")
    sizes = {path: len(content) for path, content in files.items()}
    if max(sizes.values()) > MOST_CHARACTERS or sum(sizes.values()) > MOST_IN_ALL:
        largest = max(sizes, key=lambda path: sizes[path])
        raise _untaken(f"The model wrote too much: {largest} alone has {sizes[largest]:,} characters.", "Ask for less at once.")


def checked_path(name: str) -> str:
    """A plain relative path: a model's names are not trusted."""
    bare = name.strip().removeprefix("./")
    parts = bare.split("/")
    is_plain = all(part not in ("", ".", "..") and part.isprintable() and "\\" not in part and part == part.strip() for part in parts)
    if not is_plain or len(bare) > 300 or re.match(r"[A-Za-z]:|~", bare) or _NOT_OURS.intersection(part.lower() for part in parts):
        raise _untaken(f"The model named a file {name[:100]!r}, which is no plain path within the project.", "Ask again.")
    return bare


def _untaken(message: str, advice: str) -> Failed:
    return Failed(message, code="VALIDATION_FAILED", advice=advice)


def faults_in(files: Mapping[str, str]) -> dict[str, str]:
    """Those that do not parse: line and what is wrong there."""
    faults = {}
    for path, text in files.items():
        wrong = fault_in(path, language(path, text[:200]), text)
        if wrong is not None:
            faults[path] = f"line {wrong[0]}: {wrong[1]}"
    return faults
