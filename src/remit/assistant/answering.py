"""The return of a message: answered, out of time, or given up; each with what was done and the conversation in which to go on. Pure."""

import re
from dataclasses import dataclass
from typing import Any

from remit.core.agents import AgentSpec
from remit.core.errors import RemitError
from remit.flow.reply import TOOL_UNAVAILABLE, error_of, shortened
from remit.flow.validate import summary_warnings
from remit.models.messages import Ended

_MARKUP = re.compile(r"```.{0,4000}?(?:```|\Z)|[`*_#>|~\[\]]|^\s*(?:[-+]|\d+[.)])\s+", re.DOTALL | re.MULTILINE)
_SENTENCE = re.compile(r"[^.!?]{3,}[.!?]")
_SUMMARY_CHARACTERS = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    text: str
    """What the assistant said, as far as it came."""
    ended: Ended | None
    """Why its last reply ended; None: it was not given to its end."""
    conversation_id: str
    delegations: tuple[dict[str, Any], ...]

    @property
    def data(self) -> dict[str, Any]:
        return {"text": self.text, "conversation": self.conversation_id, "delegations": list(self.delegations)}

    @property
    def go_on(self) -> str:
        return f"Go on in the conversation {self.conversation_id}: what was done is known there"


def answered(outcome: Outcome) -> dict[str, Any]:
    if outcome.ended is Ended.REFUSED:
        return _unfinished(
            "failed", outcome, _error("execution", "The model's provider refused to answer.", "UNKNOWN_ERROR", "Ask in other words.")
        )
    if not outcome.text.strip():
        error = _error("execution", "The model answered with nothing.", "UNKNOWN_ERROR", f"{outcome.go_on}, or take another model.")
        return _unfinished("failed", outcome, error)
    if outcome.ended is Ended.LENGTH:
        error = _error("execution", "The answer was cut off: it is longer than the model may answer.", "UNKNOWN_ERROR", f"{outcome.go_on}.")
        return _unfinished("partial", outcome, error)
    return {"status": "completed", "summary": summary_of(outcome), "artifacts": [], "data": outcome.data}


def out_of_time(why: str, seconds: float, outcome: Outcome) -> dict[str, Any]:
    """Never failed: what was done stands (S2.6)."""
    message = f"The assistant was stopped after {seconds:.0f} s: {why}."
    advice = f'{outcome.go_on}: remit ask --conversation {outcome.conversation_id} "go on". More time: [assistant] message_seconds.'
    return _unfinished("partial", outcome, _error("timeout", message, "TIMEOUT", advice))


def out_of_budget(message: str, outcome: Outcome) -> dict[str, Any]:
    return _unfinished("partial", outcome, _error("budget", message, "BUDGET_EXCEEDED", f"{outcome.go_on}, under a larger budget."))


def given_up(error: RemitError, spec: AgentSpec, outcome: Outcome) -> dict[str, Any]:
    """No model answered, or it came to nothing."""
    told = error_of(error, spec).to_dict()
    if not told["recommendation"].startswith("Go on in"):
        told["recommendation"] = f"{told['recommendation'].rstrip()} {outcome.go_on}."
    status = "blocked" if error.code == TOOL_UNAVAILABLE else "partial" if outcome.delegations else "failed"
    return _unfinished(status, outcome, told)


def summary_of(outcome: Outcome) -> str:
    """The first sentences, without markup, and what was delegated."""
    bare = " ".join(_MARKUP.sub(" ", outcome.text[:8000]).split())
    first = ""
    for found in _SENTENCE.finditer(bare[:2000]):
        if first and len(first) + len(found.group()) > _SUMMARY_CHARACTERS:
            break
        first += found.group()
    said = shortened(first.strip() or bare, _SUMMARY_CHARACTERS)
    words = f"{said}{'' if said.endswith(('.', '!', '?', ')')) else '.'} {_handed_out(outcome)}"
    if not said or summary_warnings(words):
        return f"The assistant answered in {len(outcome.text.split())} words. {_handed_out(outcome)}"
    return words


def _handed_out(outcome: Outcome) -> str:
    count = len(outcome.delegations)
    return "Nothing was delegated." if not count else f"It handed out {count} delegation{'' if count == 1 else 's'}."


def _unfinished(status: str, outcome: Outcome, error: dict[str, Any]) -> dict[str, Any]:
    return {
        "status": status,
        "summary": shortened(f"{error['message']} {_handed_out(outcome)}"),
        "artifacts": [],
        "errors": [error],
        "next_steps": error["recommendation"],
        "data": outcome.data,
    }


def _error(type_: str, message: str, code: str, recommendation: str) -> dict[str, Any]:
    return {"type": type_, "message": message, "code": code, "recoverable": True, "recommendation": recommendation}
