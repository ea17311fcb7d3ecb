"""The output schema of an agent, as it is declared: JSON schema in the file itself, or the path of a JSON file inside the project.

Reads it; what a schema may be, and whether a return keeps to it, is `flow.output_schema`'s to say. Used by `agents.files`.
"""

import json
from dataclasses import replace
from os.path import normpath
from pathlib import Path
from typing import Any

from pydantic_core import from_json, to_json

from remit.agents.declared import Declared
from remit.agents.opening import bytes_of
from remit.core.errors import Misused
from remit.flow.output_schema import checked_schema

KEY = "output_schema"
LARGEST_BYTES = 256 * 1024


def with_schema(declared: Declared, root: Path) -> Declared:
    """With the schema itself in the place of its path. Raises `Misused`, beginning with the key."""
    said = declared.table.get(KEY)
    if said is None:
        return declared
    schema = _read(said, root) if isinstance(said, str) else said
    # As JSON: YAML knows dates and numbers as names, which no wire carries.
    plain: Any = from_json(to_json(checked_schema(schema)))
    return replace(declared, table={**declared.table, KEY: plain})


def _read(path: str, root: Path) -> Any:
    if not path.endswith(".json") or "\0" in path:
        raise Misused(f"{KEY}: {path!r:.200} is no .json file: write the schema itself, or the path of a file in the project.")
    if not Path(normpath(root / path)).is_relative_to(normpath(root)):  # whether it is there is nobody's to learn
        raise Misused(f"{KEY}: {path} leads out of the project.")
    try:
        data = bytes_of(root / path, root, LARGEST_BYTES)
    except Misused as error:
        raise type(error)(f"{KEY}: {path} {error.message.removeprefix('it ')}") from None
    try:
        return json.loads(data)
    except json.JSONDecodeError as error:
        raise Misused(f"{KEY}: {path}: line {error.lineno}: it is not JSON: {error.msg}.") from None
    except (ValueError, RecursionError) as error:
        raise Misused(f"{KEY}: {path} is not JSON: {str(error)[:100]}.") from None
