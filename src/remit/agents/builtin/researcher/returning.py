"""How a research ends: its return, in words for a person and with errors a program can act on.

Completed: there is an answer. Partial: time ran out, or nothing answers (`NOT_FOUND`, with what to try). Where nothing at all could be
looked at, it is what the first worker reported: blocked when a tool or a permission is missing, else failed.
"""

import re
from collections.abc import Mapping
from typing import Any

from remit.agents.builtin.researcher.findings import Result
from remit.agents.builtin.researcher.gathering import Gatherer
from remit.agents.builtin.researcher.report import Searched, count
from remit.agents.builtin.researcher.written import Written
from remit.core.errors import ErrorInfo

_MISSING = ("TOOL_UNAVAILABLE", "POLICY_DENIED", "AGENT_UNAVAILABLE")


def answered(
    result: Result, searched: Searched, data: Mapping[str, Any], gatherer: Gatherer, written: Written | None = None
) -> dict[str, Any]:
    read = searched.read
    if not gatherer.documents and gatherer.errors:
        return could_not_look(gatherer, data)
    if written is not None and written.supported:
        words = in_words(written, read)
        if gatherer.ran_out_of_time:
            return ended("partial", f"{words} Time ran out before all was searched.", data, [out_of_time()])
        return ended("completed", words, data, [])
    if not result.answer and gatherer.ran_out_of_time:
        words = f"Time ran out when {read} had been read. No passage there holds enough of the question's words to answer it."
        return ended("partial", words, data, [out_of_time()])
    if not result.answer:
        nearest = " and names the nearest passages" if result.citations else ""
        words = f"No passage in {searched.looked_through} holds enough of the question's words to answer it."
        return ended("partial", f"{words} The report says what was searched{nearest}.", data, [_not_found(result, searched.looked_through)])
    unanswered = len(result.not_found)
    first, is_one = _short(result.answer[0].citation.place, 120), len(result.answer) == 1
    which = "passage of {} that fits" if is_one else f"{len(result.answer)} passages of {{}} that fit"
    words = (
        f"Quotes the {which.format(read)} the question best; whether {'it answers' if is_one else 'they answer'} it is for you to judge."
    )
    words += f" First: {first}."
    if unanswered:
        words += f" {count(unanswered, 'part')} of the question {'was' if unanswered == 1 else 'were'} not found."
    if gatherer.ran_out_of_time:
        return ended("partial", f"{words} Time ran out before all was searched.", data, [out_of_time()])
    return ended("completed", words, data, [])


def in_words(written: Written, read: str) -> str:
    """A summary of what a model wrote: its first sentence that is supported, and how many are not."""
    first = written.supported[0]
    marked = len(written.marked)
    words = f"{_short(plain(first.text), 200)} Written by {_short(written.by, 60) or 'a model'} from passages of {read};"
    words += f" {count(len(written.supported), 'sentence')} {'is' if len(written.supported) == 1 else 'are'} supported by what is cited"
    return words + (f", {marked} {'is' if marked == 1 else 'are'} not and marked so." if marked else ".")


def plain(text: str) -> str:
    return re.sub(r"[`*#<>\[\]|]", "", text)


def could_not_look(gatherer: Gatherer, data: Mapping[str, Any]) -> dict[str, Any]:
    first = gatherer.errors[0] if gatherer.errors else ErrorInfo(
        type="execution", message="No source could be read.", code="SOURCE_UNREAD", recoverable=True, recommendation="Name other sources."
    )  # fmt: skip
    return ended("blocked" if first.code in _MISSING else "failed", f"Nothing could be searched. {_short(first.message)}", data, [first])


def ended(status: str, summary: str, data: Mapping[str, Any], errors: list[ErrorInfo]) -> dict[str, Any]:
    return {"status": status, "summary": summary, "data": data, "errors": [error.to_dict() for error in errors], "artifacts": []}


def _not_found(result: Result, where: str) -> ErrorInfo:
    missing = sorted({word for finding in result.findings for word in finding.missing})
    lacks = f" These words stand nowhere in it: {', '.join(missing[:8])}." if missing else ""
    return ErrorInfo(
        type="not_found",
        message=f"No passage in {where} holds enough of the question's words to count as an answer.{lacks}",
        code="NOT_FOUND",
        recoverable=True,
        recommendation="Ask in the words of the sources, or name other sources: docs:FOLDER, web, an address.",
    )


def out_of_time() -> ErrorInfo:
    return ErrorInfo(
        type="timeout",
        message="The soft deadline came before everything was searched.",
        code="TIMEOUT",
        recoverable=True,
        recommendation="Delegate it again with a longer timeout, or name fewer sources.",
    )


def _short(text: str, most: int = 200) -> str:
    text = " ".join(text.split())
    return text if len(text) <= most else text[: most - 1] + "…"
