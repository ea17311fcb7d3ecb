"""What a vendor's error means for the caller: one table from its words and status to an error of ours, and how to help.

Pure. An error that heals by itself, or by somebody's logging in, is `Unavailable` (trying again is safe); one that comes again with the
same task is `Failed`.
"""

import re
from collections.abc import Mapping
from datetime import datetime

from remit.core.errors import AgentCrashed, Failed, RemitError, Unavailable

_WORDS_CHARACTERS = 700
INSTALL = {
    "claude": "npm install -g @anthropic-ai/claude-code",
    "codex": "npm install -g @openai/codex",
    "opencode": "npm install -g opencode-ai",
}
LOGIN = {
    "claude": "Log in once: run `claude` and type /login, or set ANTHROPIC_API_KEY where remit is started.",
    "codex": "Log in once: run `codex login`, or set OPENAI_API_KEY (codex login --with-api-key) where remit is started.",
    "opencode": "Log in once: run `opencode auth login`, or set your provider's key and name it in pass_environment.",
}
_SESSION_GONE = re.compile(r"no conversation found|no rollout found|session not found|thread not found", re.IGNORECASE)
_LOGIN = re.compile(
    r"not logged in|please run /login|log ?in again|invalid (?:x-)?api[- _]?key|incorrect api key|authenticat|unauthori[sz]ed"
    r"|missing bearer|oauth token (?:has )?expired|no auth credentials|api key is missing"
    r"|no providers? (?:is |are )?(?:configured|available)",
    re.IGNORECASE,
)
_BUSY = re.compile(
    r"rate.?limit|too many requests|overloaded|high demand|usage limit|quota|credit balance|at capacity|out of credits|hit your limit",
    re.IGNORECASE,
)
_UNREACHED = re.compile(
    r"connect|network|econn|enotfound|etimedout|eai_again|fetch failed|socket|timed out|stream disconnected|internal server error"
    r"|bad gateway|service unavailable|gateway timeout|server_error|could not resolve|name does not resolve|stream error",
    re.IGNORECASE,
)
_TOO_LONG = re.compile(r"prompt is too long|context (?:window|length)|context_length|too many tokens|input is too long", re.IGNORECASE)
_TURNS = re.compile(r"max[_ ]turns|maximum (?:number of )?turns|error_max_budget", re.IGNORECASE)
_REFUSAL = re.compile(r"refus|usage policy|content policy|unable to respond to this request|safety", re.IGNORECASE)
_NO_CONNECTION = re.compile(r"conn(?:ection)?[\s_]*refused|refused (?:the |to )?connect\w*", re.IGNORECASE)
"""Refused by a port, not by a model."""
_NO_MODEL = re.compile(r"model[^.]{0,60}(?:not found|does not exist|not exist|not available|not supported)|unknown model", re.IGNORECASE)
_STATUS = re.compile(r"\b(?:status:?|error:?|http)\s*(?:code:?\s*)?([45]\d\d)\b", re.IGNORECASE)

_LOGGED = re.compile(r'error\.(?:error|message)="([^"]+)"')
"""The words in a line of a log."""
_TIMESTAMP = re.compile(r"\btimestamp=(\S+)")


def is_session_gone(words: str) -> bool:
    """It knows no such session: begun in another folder, or cleaned away."""
    return _SESSION_GONE.search(words) is not None


def error_for(vendor: str, message: str, status: int | None = None) -> RemitError:
    words = " ".join(message.split())[:_WORDS_CHARACTERS] or "no word why"
    if status is None and (found := _STATUS.search(words)):
        status = int(found[1])
    if status in (401, 403) or (status is None and _LOGIN.search(words)):
        return Unavailable(f"{vendor} is not logged in, or its key is not accepted: {words}", advice=LOGIN.get(vendor, "Log in once."))
    if _TOO_LONG.search(words) or status == 413:
        return Failed(f"{vendor} ran out of context: {words}", advice="Give it a smaller task, or parts of it one by one.")
    if status in (429, 529) or _BUSY.search(words):
        what = "overloaded" if status == 529 or "overload" in words.lower() else "at its rate or usage limit"
        return Unavailable(f"The model's service of {vendor} is {what}: {words}", advice="Try again later.")
    if status is not None and status >= 500:
        return Unavailable(f"The model's service of {vendor} has an error: {words}", advice="Try again later.")
    if _TURNS.search(words):
        return Failed(f"{vendor} used up its turns: {words}", advice="Resume it (resume=SESSION), or allow it more in its options.")
    if _NO_MODEL.search(words):
        return Failed(f"{vendor} does not have the model it was given: {words}", advice="Name another as its model.")
    if _REFUSAL.search(_NO_CONNECTION.sub("", words)):
        return Failed(f"{vendor} refused: {words}", advice="Word the task differently, or give it to another agent.")
    if status is None and _UNREACHED.search(words):
        return Unavailable(f"{vendor} could not reach its model: {words}", advice="See to the network, or try again later.")
    return Failed(f"{vendor} ended with an error: {words}", advice=f"Run {vendor} by hand in the same folder to see more.")


def last_trouble(stderr: str, heard_at: float | None) -> str:
    """The last line of what it wrote to its standard error that tells of its model's service; empty where none does.

    What is older than the last word that was heard of it (`heard_at`, on the wall clock) is over.
    """
    for line in reversed(stderr.splitlines()):
        if heard_at is not None and _written_at(line) <= heard_at:
            continue
        if _BUSY.search(line) or _UNREACHED.search(line) or _STATUS.search(line) or _LOGIN.search(line):
            logged = _LOGGED.search(line)
            return " ".join((logged[1] if logged else line).split())[:_WORDS_CHARACTERS]
    return ""


def _written_at(line: str) -> float:
    """The time in a line of a log; long ago for one that says none."""
    found = _TIMESTAMP.search(line)
    try:
        return datetime.fromisoformat(found[1]).timestamp() if found else 0.0
    except (ValueError, OverflowError):
        return 0.0


def crash_of(vendor: str, argv0: str, code: int | None, stderr: str, printed: str) -> RemitError:
    """It ended without an answer and without an error in its stream: its last words may still say why."""
    words = f"{stderr}\n{printed}".strip()
    if _LOGIN.search(words) or is_session_gone(words):
        return error_for(vendor, words[-_WORDS_CHARACTERS:])
    how = "ended" if code is None else f"ended with exit code {code}" if code >= 0 else f"was killed by signal {-code}"
    return AgentCrashed(
        f"{argv0} {how} without an answer.",
        exit_code=code,
        stderr_tail=words[-2000:],
        advice=f"Run {vendor} by hand in the same folder to see more, and delegate it again.",
    )


def missing(vendor: str, program: str, environment: Mapping[str, str]) -> Unavailable:
    install = INSTALL.get(vendor)
    how = f"Install it: {install}. " if install else ""
    return Unavailable(
        f"The program {program} was not found.",
        advice=f'{how}Or name where it is: command = ["/path/to/{program}"]. Looked for in PATH: {environment.get("PATH", "")}.',
    )
