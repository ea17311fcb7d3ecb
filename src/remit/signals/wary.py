"""How answers of a collector are read over HTTP: so much of each and no more, whatever it sends.

An exporter asks only whether something arrived; by itself its library would read an answer without end into memory. Used by `exporting`;
needs requests, which the exporters bring along.
"""

from typing import Any

import requests
from requests.adapters import HTTPAdapter

MOST_BYTES = 64 * 1024


class _Wary(HTTPAdapter):
    def send(self, request: Any, *arguments: Any, **options: Any) -> Any:
        options["stream"] = True  # nothing of the answer is read yet
        response = super().send(request, *arguments, **options)
        try:
            response._content = response.raw.read(MOST_BYTES)
            response._content_consumed = True  # as `content` notes it: what is there is all
            if response.raw.read(1):
                response.raw.close()  # it has not ended: the connection is of no more use
        finally:
            response.close()
        return response


def wary_session() -> requests.Session:
    session = requests.Session()
    for scheme in ("http://", "https://"):
        session.mount(scheme, _Wary())
    return session
