"""Context files of a project (`.remit/context`): selected by a task's level and language, within a size limit."""

import os
from pathlib import Path

from remit.core.context import LEVELS, ContextFiles
from remit.core.errors import Misused
from remit.system.beneath import open_regular
from remit.system.files import walk

LIMIT_BYTES = 200_000
"""About 50,000 tokens, beside the task."""
SUFFIXES = frozenset({".md", ".txt", ".rst", ".json", ".yaml", ".yml", ".toml"})
"""Only text is context: other files in the folder are skipped."""
COMMON = "common"
CONTEXT_FOLDER = Path(".remit") / "context"


def context_files(root_dir: Path, level: int, language: str, limit_bytes: int = LIMIT_BYTES) -> ContextFiles:
    """Level 1 `common/`, 2 also the language's folder, 3 everything; most general first, by name within each.

    A file that does not fit into `limit_bytes` is omitted as a whole and named; smaller ones after it are still included."""
    if level not in LEVELS.values():
        raise Misused(f"Unknown context level {level!r}.", advice="Use 1, 2 or 3.")
    if not root_dir.is_dir():
        return ContextFiles(paths=(), text="", warnings=())
    if not root_dir.resolve().is_relative_to(root_dir.absolute().parents[1].resolve()):  # a link in a clone, to the user's files
        return ContextFiles(paths=(), text="", warnings=(f"{CONTEXT_FOLDER} was left out: it is a link that leads out of the project.",))
    # A language is one plain name: one with a slash or dots would leave the context folder.
    has_folder = not language.startswith(".") and Path(language).name == language != "" and (root_dir / language).is_dir()
    folders = [root_dir / COMMON, *([root_dir / language] if level > 1 and has_folder else []), *([root_dir] if level > 2 else [])]
    texts, used, warnings = dict[str, str](), 0, list[str]()
    if level == 2 and not has_folder:
        warnings.append(f"There is no context folder for language {language!r}: only {COMMON}/ was loaded.")
    for path in dict.fromkeys(path for folder in folders for path in _files_in(folder) if _is_context(path, root_dir)):
        name = path.relative_to(root_dir).as_posix()
        try:
            with os.fdopen(open_regular(path.resolve()), "rb") as file:
                content = file.read(limit_bytes + 1)
                text = f"--- {name}\n{content.decode('utf-8').rstrip() if len(content) <= limit_bytes else ''}\n"
                size = len(text.encode()) + (0 if len(content) <= limit_bytes else os.fstat(file.fileno()).st_size)
        except (OSError, ValueError) as error:
            warnings.append(f"Context file {name} was left out: {error}.")
            continue
        if used + size > limit_bytes:
            warnings.append(f"Context file {name} was left out: its {size} bytes do not fit into the limit of {limit_bytes}.")
            continue
        used, texts[name] = used + size, text
    return ContextFiles(paths=tuple(texts), text="".join(texts.values()), warnings=tuple(warnings))


def _files_in(folder: Path) -> list[Path]:
    return sorted((Path(place, name) for place, _, names in walk(folder) for name in names), key=lambda one: one.as_posix())


def _is_context(path: Path, root_dir: Path) -> bool:
    """Text, not hidden, and not a link that leads out of the folder."""
    if path.suffix.lower() not in SUFFIXES or any(part.startswith(".") for part in path.relative_to(root_dir).parts):
        return False
    return path.is_file() and path.resolve().is_relative_to(root_dir.resolve())
