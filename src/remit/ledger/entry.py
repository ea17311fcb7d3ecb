"""One entry of the error ledger (S4.7): made from what was noted, seen again, and to and from the file.

Fields this version does not know are kept as they came. Files and locks are `file`'s.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from remit.core.clock import iso
from remit.ledger.similar import similarity_key
from remit.ledger.tally import Noted, Tally, key_of

FIX_STATUSES = ("not_addressed", "in_progress", "resolved", "wont_fix")
RELATED_LIMIT = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    id: str
    timestamp: str
    """When the entry was made. Times are UTC."""
    type: str
    severity: str
    context: Mapping[str, Any]
    """Where it happened last: code, agent, command, session, tree, task, path, and what was recommended."""
    message: str
    """As it was last seen."""
    stack_trace: str
    fix_status: str
    fix_plan_ref: str | None
    fix_task_ref: str | int | None
    recurrence_count: int
    """How often it was seen, the first time included."""
    first_seen: str
    last_seen: str
    related_errors: tuple[str, ...]
    """Ids of entries seen in the same tree, or of the same agent with the same code."""
    extra: Mapping[str, Any] = field(default_factory=dict)

    @property
    def code(self) -> str:
        return str(self.context.get("code") or "")

    @property
    def origin(self) -> str:
        return str(self.context.get("agent") or self.context.get("command") or "")

    @property
    def key(self) -> str:
        return similarity_key(self.type, self.code, self.origin, self.message)

    def to_dict(self) -> dict[str, Any]:
        known = {name: getattr(self, name) for name in _FIELDS}
        return {**known, **self.extra}

    def again(self, tally: Tally) -> "Entry":
        """Seen again. One that was held to be resolved needs somebody's attention once more; what was tried stays named."""
        newest = iso(tally.last_at) >= self.last_seen
        noted = tally.noted
        return replace(
            self,
            recurrence_count=self.recurrence_count + tally.count,
            first_seen=min(self.first_seen, iso(tally.first_at)),
            last_seen=max(self.last_seen, iso(tally.last_at)),
            context=_context(noted) if newest else self.context,
            message=noted.error.message if newest else self.message,
            stack_trace=(noted.stack_trace if newest else "") or self.stack_trace,
            fix_status="not_addressed" if self.fix_status == "resolved" else self.fix_status,
        )

    def related_to(self, ids: Iterable[str]) -> "Entry":
        together = dict.fromkeys((*self.related_errors, *ids))
        together.pop(self.id, None)
        related = tuple(together)[-RELATED_LIMIT:]
        return self if related == self.related_errors else replace(self, related_errors=related)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fix:
    """What is being done about an entry, whole: what was said before is replaced."""

    status: str
    plan_ref: str | None = None
    task_ref: str | int | None = None

    def of(self, entry: Entry) -> Entry:
        return replace(entry, fix_status=self.status, fix_plan_ref=self.plan_ref, fix_task_ref=self.task_ref)


_FIELDS = tuple(name for name in Entry.__dataclass_fields__ if name != "extra")


def first_entry(tally: Tally) -> Entry:
    error = tally.noted.error
    return Entry(
        id=f"error_{key_of(tally.noted)}",
        timestamp=iso(tally.first_at),
        type=error.type,
        severity="medium" if error.code == "TIMEOUT" or error.type == "timeout" else "high",
        context=_context(tally.noted),
        message=error.message,
        stack_trace=tally.noted.stack_trace,
        fix_status="not_addressed",
        fix_plan_ref=None,
        fix_task_ref=None,
        recurrence_count=tally.count,
        first_seen=iso(tally.first_at),
        last_seen=iso(tally.last_at),
        related_errors=(),
    )


def _context(noted: Noted) -> dict[str, Any]:
    return {
        "code": noted.error.code,
        "agent": noted.agent,
        "command": noted.command,
        "session_id": noted.session_id,
        "root_id": noted.root_id,
        "task_number": noted.task_number,
        "delegation_path": list(noted.path),
        "recoverable": noted.error.recoverable,
        "recommendation": noted.error.recommendation,
    }


def _text(value: Any) -> bool:
    return value is None or isinstance(value, str)


_CHECKS: dict[str, Callable[[Any], bool]] = {
    **dict.fromkeys(("timestamp", "type", "message", "severity", "fix_status"), lambda value: isinstance(value, str)),
    **dict.fromkeys(("stack_trace", "first_seen", "last_seen", "fix_plan_ref"), _text),
    "id": lambda value: isinstance(value, str) and value != "",
    "context": lambda value: isinstance(value, dict),
    "fix_task_ref": lambda value: _text(value) or type(value) is int,
    "recurrence_count": lambda value: type(value) is int and value >= 1,
    "related_errors": lambda value: isinstance(value, list) and all(isinstance(one, str) for one in value),
}
_REQUIRED = frozenset({"id", "timestamp", "type", "message"})
_DEFAULTS: dict[str, Any] = {"severity": "high", "context": {}, "stack_trace": "", "fix_status": "not_addressed", "fix_plan_ref": None,
             "fix_task_ref": None, "recurrence_count": 1, "first_seen": "", "last_seen": "", "related_errors": []}  # fmt: skip


def entry_from(value: Any) -> Entry | None:
    """The entry a piece of the file stands for; None when it is none: people and other programs write the file too."""
    if not isinstance(value, dict) or not value.keys() >= _REQUIRED:
        return None
    if not all(is_right(value[name]) for name, is_right in _CHECKS.items() if name in value):
        return None
    known = {**_DEFAULTS, **{name: value[name] for name in _FIELDS if name in value}}
    known["stack_trace"] = known["stack_trace"] or ""
    known["related_errors"] = tuple(known["related_errors"])
    known["first_seen"] = known["first_seen"] or known["timestamp"]
    known["last_seen"] = known["last_seen"] or known["timestamp"]
    return Entry(**known, extra={name: field for name, field in value.items() if name not in _FIELDS})
