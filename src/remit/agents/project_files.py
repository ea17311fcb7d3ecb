"""Small project files, read whole and never outside the project; and the output schema of an agent."""

import json
import os
from dataclasses import replace
from os.path import normpath, realpath
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic_core import from_json, to_json

from remit.core.errors import Misused, Refused
from remit.core.protected_paths import Protection, protection_of
from remit.system.beneath import open_regular
from remit.system.trust import ADVICE, CODE, ProjectTrust

if TYPE_CHECKING:
    from remit.agents.definition import Declaration

KEY = "output_schema"
SCHEMA_BYTES = 256 * 1024


class Gone(Misused):
    """The file does not exist, or no longer exists."""


class NotApproved(Misused, Refused):
    """No person approved its content."""

    default_code = CODE


def bytes_of(path: Path, root: Path, most: int, trust: ProjectTrust | None = None) -> bytes:
    """The content of a regular file, which must be approved if `trust` is given. Raises `Misused`, without the path."""
    try:
        real = path.resolve(strict=True)
        if not real.is_relative_to(root.resolve()):
            raise Misused("it is a link that leads out of the project.")
        if not real.is_file():
            raise Misused("it is not a file.")
        with os.fdopen(open_regular(real), "rb") as opened:
            data = opened.read(most + 1)
    except FileNotFoundError as error:
        raise Gone(f"it cannot be read: {error.strerror}.") from None
    except (OSError, RuntimeError) as error:  # RuntimeError: circular links, before Python 3.13
        raise Misused(f"it cannot be read: {getattr(error, 'strerror', None) or error}.") from None
    if len(data) > most:
        raise Misused(f"it is larger than {most // 1024} KiB.")
    if trust is not None and not trust.allows_content(path, data):
        raise NotApproved("it is not approved.", advice=ADVICE)
    return data


def with_schema(declared: "Declaration", root: Path) -> "Declaration":
    """The declaration with the schema in place of its path. Raises `Misused`, beginning with the key."""
    said = declared.table.get(KEY)
    if said is None:
        return declared
    from remit.runtime.output_schema import check_schema  # only if an agent declares one

    schema = _read(said, root) if isinstance(said, str) else said
    # As JSON: YAML has dates, and numbers as names, which JSON lacks.
    plain: Any = from_json(to_json(check_schema(schema)))
    return replace(declared, table={**declared.table, KEY: plain})


def _read(path: str, root: Path) -> Any:
    if not path.endswith(".json") or "\0" in path:
        raise Misused(f"{KEY}: {path!r:.200} is not a .json file: write the schema itself, or the path of a file in the project.")
    if not Path(normpath(root / path)).is_relative_to(normpath(root)):  # the same message whether it exists or not
        raise Misused(f"{KEY}: {path} leads out of the project.")
    if any(protection_of(one) is Protection.SECRET for one in (path, realpath(root / path))):
        raise Misused(f"{KEY}: {path} may contain secrets, and a schema is shown to models.")
    try:
        return json.loads(bytes_of(root / path, root, SCHEMA_BYTES))
    except Misused as error:
        raise type(error)(f"{KEY}: {path} {error.message.removeprefix('it ')}") from None
    except json.JSONDecodeError as error:
        raise Misused(f"{KEY}: {path}: line {error.lineno}: it is not JSON: {error.msg}.") from None
    except (ValueError, RecursionError) as error:
        raise Misused(f"{KEY}: {path} is not JSON: {str(error)[:100]}.") from None
