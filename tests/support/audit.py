"""The audit log of a project as a reader of its file sees it, and the rules that apply by default."""

import json
from importlib.resources import files
from pathlib import Path
from typing import Any

DEFAULT_RULES = files("remit").joinpath("policy/default.cedar").read_text("utf-8")


def audit_log(root: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in audit_path(root).read_text().splitlines()]


def audit_path(root: Path) -> Path:
    return root / ".remit" / "audit.jsonl"
