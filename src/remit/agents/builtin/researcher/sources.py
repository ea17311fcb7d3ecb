"""Where to look: the `sources` of a request read into folders, files, addresses and the web.

Pure: it opens nothing. Whether a folder exists is what the worker that is sent there reports.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from remit.agents.builtin.researcher.question import Question

DOCUMENTS = ("docs", "doc", "documentation")
_URL = re.compile(r"^https?://\S+$", re.IGNORECASE)
_SCHEME = re.compile(r"^[a-z][a-z0-9+.-]+://", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Places:
    paths: tuple[str, ...] = ()
    """Folders or files, relative to the workspace; `.` is all of it."""
    only_documents: bool = False
    """Of `.`, only documentation: what `docs` means where no folder is named."""
    urls: tuple[str, ...] = ()
    web: bool = False
    without: tuple[str, ...] = ()
    """Folders and files that are left out of all of it: `!specs`."""
    unknown: tuple[str, ...] = ()
    """Sources that mean nothing here, in words."""


def places(sources: Sequence[str] | None, question: Question) -> Places:
    """Without sources: the files and documents of the project, and the web where the question asks for it."""
    if not sources:
        return Places(paths=(".",), urls=question.urls, web=question.asks_for_web and not question.urls)
    paths, urls, unknown = [], list(question.urls), []
    without = [source.strip().removeprefix("!").strip("/") for source in sources if source.strip().startswith("!")]
    sources = [source for source in sources if not source.strip().startswith("!")]
    if not sources:
        return replace(places(None, question), without=tuple(filter(None, without)))
    web = documents = files = False
    for given in sources:
        source = given.strip()
        word = source.lower()
        if word == "web":
            web = True
        elif word == "files":
            files = True
        elif word == "docs":
            documents = True
        elif _URL.match(source):
            urls.append(source)
        elif _SCHEME.match(source) or not source or "\x00" in source:
            unknown.append(
                f"{source[:80]!r} is not a source: use web, files, docs, docs:FOLDER, a path in the project, or an http(s) address"
            )
        else:
            path = source.removeprefix("docs:").removeprefix("files:").strip()
            paths.append(path.rstrip("/") or ("." if path in ("", ".", "./") else path))
    if files or documents:
        paths.insert(0, ".")
    return Places(
        paths=tuple(dict.fromkeys(paths)),
        only_documents=documents and not files,
        urls=tuple(dict.fromkeys(urls)),
        web=web,
        without=tuple(filter(None, without)),
        unknown=tuple(unknown),
    )
