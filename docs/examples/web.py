"""A page of this machine is fetched: the policy of the project permits it, and only it."""

import asyncio
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from remit import Remit

POLICY = """
@id("agents-may-work")
permit (principal, action, resource);

@id("public-addresses-only")
forbid (principal, action in Action::"network", resource)
when { context has address && context.address != "public" }
unless { context has host && context.host == "127.0.0.1" };
"""


class Pages(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        page = b"<html><head><title>Owls</title></head><body><p>An owl hunts at night, without a sound.</p></body></html>"
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        self.wfile.write(page)

    def log_message(self, *_: object) -> None:
        """Not printed."""


def permit() -> None:
    Path(".remit").mkdir(exist_ok=True)
    Path(".remit/policy.cedar").write_text(POLICY)


async def main() -> None:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Pages)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    async with Remit.open(".") as remit:
        page = await remit.delegate("worker.web_fetch", url=f"http://127.0.0.1:{server.server_port}/")
        print(page.status, page.data["status"], page.data["title"])
        print(page.data["text"])
        inside = await remit.delegate("worker.web_fetch", url="http://169.254.169.254/latest/meta-data/")
        print(inside.status, inside.errors[0].code)
    server.shutdown()


if __name__ == "__main__":
    permit()
    asyncio.run(main())
