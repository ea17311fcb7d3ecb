"""The output schema of an agent, as it is declared: JSON schema in the file itself, or the path of a JSON file inside the project.

Judges that it is a schema; whether a return keeps to it is checked in `flow`. Used by `agents.files`.
"""

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from remit.agents.declared import Declared
from remit.core.errors import Misused

KEY = "output_schema"
LARGEST_BYTES = 256 * 1024
_TYPES = ("object", "array", "string", "number", "integer", "boolean", "null")


def schema_file(declared: Declared, root: Path) -> Path | None:
    """The file it names, if it names one."""
    said = declared.table.get(KEY)
    return root / said if isinstance(said, str) else None


def with_schema(declared: Declared, root: Path) -> Declared:
    """With the schema itself in the place of its path. Raises `Misused`, beginning with the key."""
    said = declared.table.get(KEY)
    if said is None:
        return declared
    schema = _read(said, root) if isinstance(said, str) else said
    if not isinstance(schema, Mapping):
        raise Misused(f"{KEY}: it must be a JSON schema, or the path of a .json file in the project, not a {type(schema).__name__}.")
    _check(schema)
    return replace(declared, table={**declared.table, KEY: dict(schema)})


def _read(path: str, root: Path) -> Any:
    if not path.endswith(".json") or "\0" in path:
        raise Misused(f"{KEY}: {path!r:.200} is no .json file: write the schema itself, or the path of a file in the project.")
    try:
        place = (root / path).resolve(strict=True)
        if not place.is_relative_to(root.resolve()):
            raise Misused(f"{KEY}: {path} leads out of the project.")
        with place.open("rb") as opened:
            data = opened.read(LARGEST_BYTES + 1)
    except (OSError, RuntimeError) as error:  # RuntimeError: links in a circle, before Python 3.13
        raise Misused(f"{KEY}: {path} cannot be read: {getattr(error, 'strerror', None) or error}.") from None
    if len(data) > LARGEST_BYTES:
        raise Misused(f"{KEY}: {path} is larger than {LARGEST_BYTES // 1024} KiB.")
    try:
        return json.loads(data)
    except json.JSONDecodeError as error:
        raise Misused(f"{KEY}: {path}: line {error.lineno}: it is not JSON: {error.msg}.") from None
    except (ValueError, RecursionError) as error:
        raise Misused(f"{KEY}: {path} is not JSON: {str(error)[:100]}.") from None


def _check(schema: Mapping[str, Any]) -> None:
    kind = schema.get("type")
    for one in kind if isinstance(kind, list) else [kind]:
        if one is not None and one not in _TYPES:
            raise Misused(f"{KEY}: type must be one of {', '.join(_TYPES)}, not {one!r:.60}.")
    try:
        # Comes with the extra `models`; a program whose agents declare no schema does not wait for it.
        from jsonschema.exceptions import SchemaError
        from jsonschema.validators import validator_for
    except ImportError:
        return
    try:
        validator_for(schema).check_schema(schema)
    except SchemaError as error:
        where = ".".join(map(str, error.absolute_path))
        raise Misused(f"{KEY}: it is no JSON schema: {f'{where}: ' if where else ''}{error.message[:200]}.") from None
    except (RecursionError, TypeError, ValueError, AttributeError) as error:
        raise Misused(f"{KEY}: it is no JSON schema: {str(error)[:100]}.") from None
