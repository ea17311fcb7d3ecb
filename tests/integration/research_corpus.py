"""Thirty small documents of a fictional product with questions and the document that answers each, and questions about real packages."""

import re
from pathlib import Path

DOCUMENTS = dict(
    re.findall(r"^=== (\S+)\n(.*?)(?=^=== |\Z)", Path(__file__).with_suffix(".txt").read_text(), flags=re.MULTILINE | re.DOTALL)
)
"""By path."""

QUESTIONS = {
    "What is Heron?": "README.md",
    "How do I restore a mailbox from a snapshot?": "docs/backup.md",
    "How long are backup snapshots kept before they are deleted?": "docs/backup.md",
    "What happens when the quota of a mailbox is reached?": "docs/quota.md",
    "Why are plain connections refused?": "docs/tls.md",
    "How are passwords stored?": "docs/users.md",
    "Where does the server write its log?": "docs/logging.md",
    "How many recipients may a message have?": "docs/limits.md",
    "Who began Heron, and when did the first stable release come out?": "docs/history.md",
    "When is a message that cannot be delivered tried again?": "src/queue.py",
    "How can the lock of a dead process be broken?": "src/locks.py",
    "What does ParseHeader return for a line without a colon?": "src/parser.go",
    "When are entries evicted from the cache?": "src/cache.ts",
    "After how much inactivity does a webmail session end?": "docs/webmail.md",
    "Wird die Sicherung verschlüsselt?": "docs/de/sicherung.md",
}

PROGRAM_QUESTIONS = {
    "What is the default status code of RedirectResponse?": "status_code: int = 307",
    "Which exception is raised when a route name is not found?": "NoMatchFound",
    "What is the default minimum size for GZipMiddleware?": "minimum_size: int = 500",
    "Is the httpx client thread safe?": "shared between threads",
    "What is the default timeout of httpx?": "5.0",
    "What is the maximum number of redirects?": "= 20",
    "How is HTTP/2 enabled in httpx?": "http2",
    "Which error is raised when the body was not read?": "ResponseNotRead",
    "Where does StaticFiles refuse paths outside its directory?": "os.path.commonpath",
    "How are environment proxies read?": "getproxies",
}
"""Questions about the installed starlette and httpx, with words of the answer."""
