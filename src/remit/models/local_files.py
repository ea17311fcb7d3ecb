"""Weights on this machine: where they are kept, by which name, and which file is meant. Fetches and runs nothing."""

import os
import re
from dataclasses import dataclass
from pathlib import Path

from remit.core.errors import Unavailable
from remit.models.local_gguf import Head, NotGguf, read_head

SUFFIX = ".gguf"
MODEL_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
GET_ONE = "`remit models add-local` gets a small one; `remit models add-local NAME --from FILE.gguf` takes one you have."
DEFAULT_CONTEXT_TOKENS = 8192
"""How much is read at once where nobody says, if it was trained for as much: memory grows with it."""


def models_folder() -> Path:
    """`$XDG_DATA_HOME/remit/models`: of the user, for all projects."""
    said = os.environ.get("XDG_DATA_HOME", "")
    data = Path(said) if os.path.isabs(said) else Path.home() / ".local" / "share"
    return data / "remit" / "models"


@dataclass(frozen=True, slots=True, kw_only=True)
class Weights:
    """A file of weights, as its head tells."""

    name: str
    """As it is named in the settings."""
    file: Path
    size: int
    head: Head

    def context_tokens(self, asked: int | None) -> int:
        trained = self.head.trained_tokens
        if asked is not None:
            return asked
        return min(trained or DEFAULT_CONTEXT_TOKENS, DEFAULT_CONTEXT_TOKENS)


def kept() -> list[Weights]:
    """Those that were added, by name. A file that is none is passed over."""
    found = []
    for path in sorted(models_folder().glob(f"*{SUFFIX}")):
        try:
            found.append(Weights(name=path.name.removesuffix(SUFFIX), file=path, size=path.stat().st_size, head=read_head(path)))
        except (OSError, NotGguf):
            continue
    return found


def find(model: str, root: Path) -> Weights:
    """The file that `model` means: a path, below the project's root unless it is a whole one, or the name of one that was added.

    Raises `Unavailable` (TOOL_UNAVAILABLE) that says what to do.
    """
    path = _place(model, root)
    try:
        return Weights(name=model, file=path, size=path.stat().st_size, head=read_head(path))
    except FileNotFoundError:
        raise Unavailable(_not_there(model, path), code="TOOL_UNAVAILABLE", advice=_advice(model)) from None
    except IsADirectoryError:
        raise Unavailable(f"{path} is a folder, not a model's file.", code="TOOL_UNAVAILABLE", advice=_advice(model)) from None
    except OSError as error:
        raise Unavailable(f"{path} cannot be read: {error.strerror}.", code="TOOL_UNAVAILABLE", advice="See to its permissions.") from None
    except NotGguf as error:
        raise Unavailable(f"{path} is no model that can be run: {error}.", code="TOOL_UNAVAILABLE", advice=GET_ONE) from None


def is_path(model: str) -> bool:
    return "/" in model or model.startswith("~") or model.lower().endswith(SUFFIX)


def _place(model: str, root: Path) -> Path:
    if is_path(model):
        return root / Path(model).expanduser()
    return models_folder() / f"{model}{SUFFIX}"


def _not_there(model: str, path: Path) -> str:
    return f"There is no file {path}." if is_path(model) else f"No local model was added under the name {model!r}."


def _advice(model: str) -> str:
    if is_path(model):
        return f"Name another one, or: {GET_ONE}"
    names = ", ".join(one.name for one in kept())
    add = f"remit models add-local {model}" if model == "smollm2" else f"remit models add-local {model} --from FILE.gguf"
    return f"Add it: {add}" + (f" (there are: {names})" if names else "")
