"""Thirty small documents of a fictional product, and questions about real packages."""

import re
from pathlib import Path

DOCUMENTS = dict(
    re.findall(r"^=== (\S+)\n(.*?)(?=^=== |\Z)", Path(__file__).with_suffix(".txt").read_text(), flags=re.MULTILINE | re.DOTALL)
)
"""By path."""

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
