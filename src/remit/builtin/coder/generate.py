"""`coder.generate_code`: code from a specification, written by the model of the project. Without one it is blocked."""

import os
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Annotated, Any

from pydantic import Field

from remit.agents.function import FunctionAgent, agent
from remit.builtin.coder.syntax import OWN_PARSERS, Fault, language_of, parse_files
from remit.builtin.worker.workspace import error_dict
from remit.core.context import Context
from remit.core.errors import Failed, Misused, OutOfTime, Unavailable
from remit.core.protected_paths import protection_of
from remit.core.request import call
from remit.core.text import UNTRUSTED, fence_untrusted, list_some, plural
from remit.models.questions import TextAnswer, TextModel, ask_optional, list_schema, object_in, object_schema
from remit.system.threads import off_loop

SPEC_LIMIT = 200_000
FILES_SHOWN = 20
_Name = Annotated[str, Field(max_length=80, pattern=r"^[\w .+#/@-]+$")]


def make_generate_code(models: TextModel) -> FunctionAgent:
    @agent("coder.generate_code", effects=("read", "write"), description="Write code from a specification. Needs a model.")
    async def generate_code(
        ctx: Context,
        spec: Annotated[str, Field(max_length=SPEC_LIMIT, pattern=r"\S", description="The code to write, in your words.")],
        language: Annotated[_Name | None, Field(description="E.g. python.")] = None,
        framework: Annotated[_Name | None, Field(description="E.g. fastapi.")] = None,
        files: Annotated[list[str] | str | None, Field(description="Files that a model is to see; at most 20.")] = None,
        overwrite: Annotated[bool, Field(description="Whether files that are there may be replaced by what a model writes.")] = False,
    ) -> dict[str, Any]:
        """Write code from a specification and return it as artifacts."""
        wishes = "\n".join(f"{name}: {word}" for name, word in (("Language", language), ("Framework", framework)) if word)
        specification = f"{wishes}\n\n## Specification\n\n{spec.strip()}".lstrip()
        if models.is_configured():
            return await generate_files(ctx, models, specification, _split_names(files), overwrite=overwrite)
        raise Unavailable(
            "No language model is configured to write code.",
            code="TOOL_UNAVAILABLE",
            advice='Set model = "PROVIDER:MODEL" in remit.toml (or REMIT_MODEL), or hand the specification to a coding agent: '
            "remit delegate NAME task=… (`remit agents --detect` shows which are installed).",
        )

    return generate_code


def _split_names(files: list[str] | str | None) -> list[str]:
    """One file may be given as text, several separated by commas."""
    named = files.split(",") if isinstance(files, str) else files or []
    named = list(dict.fromkeys(name.strip() for name in named if name.strip()))
    if len(named) > FILES_SHOWN:
        raise Misused(f"files: {len(named)} were given, at most {FILES_SHOWN} are shown to a model.", advice="Name those that matter most.")
    return named


# ---- files that a model writes


MOST_FILES = 40
MOST_SECONDS, SHARE = 600.0, 0.6
LONGEST_PATH, LONGEST_NAME = 300, 200
"""Maximum characters, and bytes of one part: accepted by every file system, also below a delegation's own folder."""
_INSTRUCTIONS = (
    "You write code from a specification. Write whole files: every import, no placeholders, no ellipses. Follow the conventions of the"
    " project where files of it are shown. Paths are relative to the project, with / between folders. Write only the files that the"
    f' specification needs. {UNTRUSTED} Answer with JSON alone: {{"files": [{{"path": "…", "content": "…"}}], "notes": "…"}}; notes are one'
    " to three sentences on what was decided."
)
SCHEMA = object_schema(files=list_schema(path={"type": "string"}, content={"type": "string"}), notes={"type": "string"})
KEPT = "generated"
MOST_LISTED = 300
MOST_SHOWN = 64 * 1024
"""Bytes of one file."""
_AT_ONCE = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class GeneratedFiles:
    files: Mapping[str, str]
    by: str
    notes: str = ""
    repaired: bool = False
    parsed: Mapping[str, Fault | None]
    """The first fault of each file that a parser has read."""

    @property
    def faults(self) -> dict[str, Fault]:
        return {path: fault for path, fault in self.parsed.items() if fault is not None}

    @property
    def surely_broken(self) -> list[str]:
        """By parsers that cannot lag behind the language; a grammar may be older than the code."""
        return [path for path in self.faults if language_of(path, text := self.files[path]) in OWN_PARSERS or not text.strip()]


async def compose(models: TextModel, ctx: Context, prompt: str) -> GeneratedFiles:
    """Raises `Unavailable` if no model answers, and `Failed` if its answer is unusable."""
    ctx.progress("A model writes the code")
    heard = await _ask(models, ctx, prompt)
    if heard.code == "BUDGET_EXCEEDED":
        raise OutOfTime(f"No model wrote the code: {heard.fault}.", code=heard.code, advice=heard.advice)
    if heard.fault:
        advice = heard.advice or "See `remit doctor`."
        raise Unavailable(f"No model wrote the code: {heard.fault}.", code=heard.code, advice=advice)
    if heard.is_cut:
        raise _bad_answer("What the model wrote was cut off before its end: it is longer than one answer may be.")
    files, notes = await off_loop(read_files, heard.text)
    first = GeneratedFiles(files=files, by=heard.model, notes=notes, parsed=await parse_files(files, SHARE * ctx.remaining))
    if not first.faults:
        return first
    ctx.progress(f"{len(first.faults)} of {len(files)} files do not parse; the model is asked to repair them")
    broken = "\n\n".join(f"{path}: {fault}\n{fence_untrusted(files[path], file=path)}" for path, fault in first.faults.items())
    asked = f"{prompt}\n\n## These files that you wrote do not parse\n\n{broken}\n\nWrite these files again, whole and repaired."
    again = await _ask(models, ctx, asked)
    with suppress(Failed):
        mended, _ = await off_loop(read_files, again.text)
        files |= {path: text for path, text in mended.items() if path in first.faults}  # files that parsed before are kept
        return replace(first, files=files, repaired=True, parsed=await parse_files(files, SHARE * ctx.remaining))
    return first


async def _ask(models: TextModel, ctx: Context, prompt: str) -> TextAnswer:
    seconds = min(MOST_SECONDS, SHARE * ctx.remaining)
    return await ask_optional(models, ctx, prompt, instructions=_INSTRUCTIONS, seconds=seconds, schema=SCHEMA)


def read_files(text: str) -> tuple[dict[str, str], str]:
    """Text by path, and notes, from the requested JSON. Raises `Failed` with the reason for an unusable answer."""
    found = object_in(text) or {}
    listed, notes = found.get("files"), found.get("notes")
    files: dict[str, str] = {}
    for one in listed if isinstance(listed, list) else ():
        path, content = (one.get("path"), one.get("content")) if isinstance(one, dict) else (None, None)
        if isinstance(path, str) and isinstance(content, str):
            files[check_path(path)] = _whole_text(content.rstrip("\n") + "\n" if content.strip() else "")
    if not 0 < len(files) <= MOST_FILES:
        raise _bad_answer(f"The model wrote {len(files)} files; it can write 1 to {MOST_FILES}.")
    if folder := next((path for path in files if any(other.startswith(f"{path}/") for other in files)), None):
        raise _bad_answer(f"The model named {folder} as a file and as a folder.")
    return files, _whole_text(notes)[:4000] if isinstance(notes, str) else ""


def _whole_text(text: str) -> str:
    """Valid UTF-8: JSON can contain half a surrogate pair."""
    return text.encode("utf-8", "replace").decode("utf-8")


def check_path(name: str) -> str:
    """A plain relative path that is not protected: a model's names are untrusted."""
    bare = name.strip().removeprefix("./")
    is_plain = all(map(_is_plain, bare.split("/"))) and len(bare) <= LONGEST_PATH and not re.match(r"[A-Za-z]:|~", bare)
    if not is_plain or protection_of(bare) is not None:
        raise _bad_answer(f"The model named a file {name[:100]!r}, which is not a plain path in the project, or is protected.")
    return bare


def _is_plain(part: str) -> bool:
    is_name = part.isprintable() and part == part.strip() and "\\" not in part and len(part.encode("utf-8", "replace")) <= LONGEST_NAME
    return is_name and part not in ("", ".", "..")


def _bad_answer(message: str) -> Failed:
    return Failed(message, code="VALIDATION_FAILED", advice="Ask again, or for less at once.")


# ---- into the workspace


async def generate_files(ctx: Context, models: TextModel, specification: str, files: Sequence[str], *, overwrite: bool) -> dict[str, Any]:
    """From the specification to files of the workspace, as a return. `files`: those that the model sees."""
    composed = await compose(models, ctx, "\n\n".join([specification, *await _read_shown(ctx, files)]))
    taken = await off_loop(lambda: [path for path in composed.files if not overwrite and os.path.lexists(ctx.workspace / path)])
    written, errors = await _write(ctx, {path: text for path, text in composed.files.items() if path not in taken}, composed.by)
    kept = await off_loop(lambda: _keep(ctx, {path: text for path, text in composed.files.items() if path not in written}, composed.by))
    for path in composed.surely_broken[:1]:
        message = f"{path} does not parse, also after one repair: {composed.faults[path]}."
        errors.append(error_dict("validation", "VALIDATION_FAILED", message, "Fix it by hand, or ask for less at once."))
    if taken:
        message = f"{list_some(taken, 5)} already there: not replaced."
        advice = "Give overwrite=true to have such files replaced, or move what was kept in the delegation's own folder."
        errors.append(error_dict("validation", "FILE_EXISTS", message, advice))
    shown = [
        {
            "path": path,
            "language": language_of(path, text) or "text",
            "parses": path not in composed.faults if path in composed.parsed else None,
            **({"fault": str(composed.faults[path])} if path in composed.faults else {}),
            "characters": len(text),
            "written": path in written,
            **({"keptAt": kept[path]} if path in kept else {}),
        }
        for path, text in composed.files.items()
    ]
    broken = f" {plural(len(composed.faults), 'file')} with syntax errors." if composed.faults else ""
    summary = f"{composed.by or 'A model'} wrote {plural(len(shown), 'file')}; {len(written)} of them in place.{broken} Nothing was run."
    return {
        "status": "partial" if errors else "completed",
        "summary": summary,
        "data": {"by": composed.by, "files": shown, "notes": composed.notes, "repaired": composed.repaired},
        "errors": errors,
    }


async def _read_shown(ctx: Context, files: Sequence[str]) -> list[str]:
    """Input for a model: the names of the project's files, and requested files, read by workers. Raises if one of these cannot be read."""
    listed = call("worker.list_files", parameters={"path": ".", "max_results": MOST_LISTED})
    reads = [call("worker.read_file", parameters={"path": path, "limit": MOST_SHOWN}) for path in files]
    listing, *answers = await ctx.gather(listed, *reads, limit=_AT_ONCE)
    names = [one["path"] for one in listing.data["entries"] if one["type"] == "file"] if listing.ok else []
    shown = [f"## Files of the project\n\n{fence_untrusted(chr(10).join(names))}"] if names else []
    for path, answer in zip(files, answers, strict=True):
        if not answer.ok:
            raise Misused(f"{path} cannot be shown to a model: {answer.errors[0].message}", advice="Name files of the project.")
        shown.append(fence_untrusted(answer.data["content"], file=path))
    return shown


async def _write(ctx: Context, files: Mapping[str, str], by: str) -> tuple[list[str], list[dict[str, Any]]]:
    """The written files, and the errors of the others."""
    ctx.progress(f"Writing {plural(len(files), 'file')}")
    requests = [
        call("worker.write_file", parameters={"path": path, "content": text, "create_parents": True}) for path, text in files.items()
    ]
    answers = dict(zip(files, await ctx.gather(*requests, limit=_AT_ONCE), strict=True))
    written = [path for path, answer in answers.items() if answer.ok]
    for path in written:
        ctx.artifact(path, "implementation", f"Written by {by}.")
    return written, [answer.errors[0].to_dict() for answer in answers.values() if not answer.ok]


def _keep(ctx: Context, files: Mapping[str, str], by: str) -> dict[str, str]:
    """Files that were not written in place, below the folder of this delegation."""
    kept = {}
    for name, text in files.items():
        path = ctx.scratch / KEPT / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        kept[name] = str(path.relative_to(ctx.root) if path.is_relative_to(ctx.root) else path)
        ctx.artifact(path, "implementation", f"Written by {by}; meant for {name}.")
    return kept
