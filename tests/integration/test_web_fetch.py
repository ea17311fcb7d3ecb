"""Fetching pages: redirects, limits, charsets and content types, from real servers on loopback.

These tests call `fetch` with their own resolver; `test_web_agents` uses a project and its policy.
"""

import ipaddress
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from web_server import answer, certificate, raw, redirect, web_server

from remit import Misused, Refused
from remit.builtin.worker.pages import FetchResult, build_headers, encode_body, fetch, read_answer
from remit.system.http import Address, Network, Trail, UnreachableError, WebRequest, parse_target, tls_context

HERE = ipaddress.ip_address("127.0.0.1")


@dataclass(slots=True)
class FakeNetwork:
    """A network with its own resolver; internal addresses are permitted for `allowed` hosts only."""

    names: dict[str, list[Sequence[Address]]] = field(default_factory=dict)
    """The addresses of each name: first lookup, second lookup, …"""
    allowed: set[str] = field(default_factory=lambda: {"127.0.0.1", "::1"})
    asked: list[dict[str, Any]] = field(default_factory=list)
    looked_up: list[str] = field(default_factory=list)
    ca_file: Path | None = None

    async def permit(self, action: str = "", /, **facts: Any) -> None:
        self.asked.append(facts)
        if facts["address"] != "public" and facts["host"] not in self.allowed:
            raise Refused(f"{facts['host']} is inside", code="POLICY_DENIED")

    async def resolve(self, host: str, _port: int) -> Sequence[Address]:
        self.looked_up.append(host)
        answers = self.names[host]
        return answers.pop(0) if len(answers) > 1 else answers[0]

    def network(self) -> Network:
        return Network(permit=self.permit, tls=lambda: tls_context(self.ca_file), resolve=self.resolve)


async def get(
    url: str, fake: FakeNetwork | None = None, *, method: str = "GET", headers: dict[str, Any] | None = None, body: Any = None,
    most: int = 5 << 20, seconds: float = 20.0, trail: Trail | None = None,
) -> FetchResult:  # fmt: skip
    data, sent = encode_body(body, build_headers(headers))
    request = WebRequest(target=parse_target(url), method=method, headers=sent, body=data)
    return await fetch(request, (fake or FakeNetwork()).network(), most=most, seconds=seconds, trail=trail)


# ---- redirects and addresses


@pytest.mark.parametrize(
    "location",
    [
        "http://127.0.0.2:{port}/secret", "http://[::ffff:127.0.0.2]:{port}/", "http://169.254.169.254/latest/meta-data/", "http://10.0.0.1/",
        "http://[fd00:ec2::254]/", "http://2130706434/", "file:///etc/passwd", "gopher://127.0.0.1/", "http://user:pw@127.0.0.1:{port}/",
        "//inner.example/", "http://metadata.google.internal/", "http://127.0.0.1:22/", "\\\\127.0.0.2\\x", "http://[::1",
    ],
)  # fmt: skip
async def test_redirect_to_an_internal_address_is_refused(location: str) -> None:
    with web_server({}) as server:
        server.routes["/"] = redirect(location.format(port=server.port))
        network = FakeNetwork(names={"inner.example": [[ipaddress.ip_address("192.168.7.7")]], "metadata.google.internal": [[HERE]]})
        with pytest.raises(Refused) as refused:
            await get(f"{server.url}/", network)
        assert refused.value.code == "POLICY_DENIED"
        assert "pw" not in str(refused.value)
        assert [heard.path for heard in server.requests] == ["/"]


async def test_name_is_resolved_once() -> None:
    """DNS rebinding: the connection uses the address that the policy judged, so nothing reaches the server."""
    public = ipaddress.ip_address("127.0.0.9")  # the judged address; no server listens there
    with web_server({"/": answer("secret")}) as server:
        network = FakeNetwork(names={"rebinding.example": [[public], [HERE]]}, allowed={"rebinding.example"})
        with pytest.raises(UnreachableError):
            await get(f"http://rebinding.example:{server.port}/", network)
        assert network.looked_up == ["rebinding.example"]
        assert server.requests == []


async def test_redirects_with_two_locations_or_in_a_loop_are_refused() -> None:
    two = raw(b"HTTP/1.1 302 SearchOutcome\r\nLocation: /a%20b\r\nLocation: /c\r\nContent-Length: 0\r\n\r\n")
    with web_server({"/space": redirect("/a b"), "/a%20b": answer("here"), "/two": two}) as server:
        assert (await get(f"{server.url}/space")).body.content == b"here"
        with pytest.raises(UnreachableError, match="2 addresses at once"):
            await get(f"{server.url}/two")
        server.requests.clear()
        server.routes["/"] = redirect("/")
        with pytest.raises(UnreachableError, match="more than 10 times"):
            await get(f"{server.url}/")
        assert len(server.requests) == 11


async def test_headers_of_the_caller_are_not_sent_to_another_origin() -> None:
    """Any header may contain a key."""
    secret = {"Authorization": "Bearer abc", "Cookie": "a=b", "X-My-Key": "k", "Accept-Language": "de"}
    with web_server({"/": answer("other")}) as other, web_server({"/same": redirect("/there")}) as server:
        server.routes["/there"] = redirect(f"{other.url}/")
        await get(f"{server.url}/same", headers=secret)
        assert [heard.headers.get("authorization") for heard in server.requests] == ["Bearer abc", "Bearer abc"]
        sent = other.requests[0].headers
        assert not {"authorization", "cookie", "x-my-key"} & sent.keys()
        assert sent["accept-language"] == "de"


async def test_no_cookies_proxies_or_netrc_are_used(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No cookies, no proxy (it would bypass the policy), no netrc (it would send passwords)."""
    netrc = tmp_path / "netrc"
    netrc.write_text("machine 127.0.0.1 login ann password hunter2\n")
    netrc.chmod(0o600)
    monkeypatch.setenv("NETRC", str(netrc))
    for name in ("http_proxy", "HTTP_PROXY", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    with web_server({"/to": answer("direct")}) as server:
        server.routes["/"] = answer(status="302 SearchOutcome", headers={"Location": "/to", "Set-Cookie": "session=1; Path=/"})
        assert (await get(f"{server.url}/")).body.content == b"direct"
        await get(f"{server.url}/to")
        assert not any({"cookie", "authorization"} & heard.headers.keys() for heard in server.requests)


ODD = {
    "Host": "x",
    "content-length": "3",
    "Transfer-Encoding": "chunked",
    "Proxy-Authorization": "x",
    "A": "b\r\nC: d",
    "A b": "c",
}


@pytest.mark.parametrize("name", ODD)
def test_framing_headers_are_refused(name: str) -> None:
    with pytest.raises(Misused) as misused:
        build_headers({name: ODD[name]})
    assert "C: d" not in str(misused.value)


# ---- limits


def gzip_zeros(mebibytes: int) -> bytes:
    """This many MiB of zeros as gzip, built by repeating one compressed piece."""
    packer, piece = zlib.compressobj(9, zlib.DEFLATED, 31), b"\0" * (1 << 20)
    first = packer.compress(piece) + packer.flush(zlib.Z_FULL_FLUSH)
    return first + (packer.compress(piece) + packer.flush(zlib.Z_FULL_FLUSH)) * (mebibytes - 1)


async def test_decompression_stops_at_the_limit() -> None:
    with web_server({"/": answer(gzip_zeros(1024), headers={"Content-Encoding": "gzip"})}) as server:
        fetched = await get(f"{server.url}/")
        assert len(fetched.body.content) == 5 << 20
        assert fetched.body.wire_bytes < 1 << 20
        assert "larger than" in fetched.body.cut


@pytest.mark.parametrize(
    "data",
    [
        b"HTTP/1.1 200 OK\r\nX-Large: " + b"a" * 300_000 + b"\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n" + b"X-Many: a\r\n" * 30_000 + b"\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\nabc",
        b"SSH-2.0-OpenSSH_9.6\r\n",
        b"",
    ],
    ids=["huge header", "many headers", "two lengths", "not HTTP", "empty"],
)
async def test_malformed_response_is_an_error(data: bytes) -> None:
    with web_server({"/": raw(data)}) as server, pytest.raises(UnreachableError):
        await get(f"{server.url}/")


async def test_certificate_must_be_trusted_and_match_the_name(tmp_path: Path) -> None:
    """TLS is verified for the requested name, not the address; a setting adds an authority."""
    file, shown = certificate(tmp_path, "site.example")
    names: dict[str, list[Sequence[Address]]] = {"site.example": [[HERE]], "other.example": [[HERE]]}
    with web_server({"/": answer("safe")}, tls=shown) as server:
        network = FakeNetwork(names=names, allowed={"site.example", "other.example"})
        with pytest.raises(UnreachableError, match="certificate is not trusted"):
            await get(f"https://site.example:{server.port}/", network, headers={"Authorization": "Bearer abc"})
        network.ca_file = file
        assert (await get(f"https://site.example:{server.port}/", network)).body.content == b"safe"
        with pytest.raises(UnreachableError, match="certificate is not trusted"):
            await get(f"https://other.example:{server.port}/", network)
        assert len(server.requests) == 1


async def test_redirect_to_plain_http_is_noted_and_refused_for_bodies(tmp_path: Path) -> None:
    file, shown = certificate(tmp_path, "site.example")
    with web_server({"/": answer("open")}) as plain, web_server({}, tls=shown) as server:
        server.routes["/"] = redirect(f"{plain.url}/", "307 Temporary Redirect")
        network = FakeNetwork(names={"site.example": [[HERE]]}, allowed={"site.example", "127.0.0.1"}, ca_file=file)
        fetched = await get(f"https://site.example:{server.port}/", network, headers={"Authorization": "Bearer abc"})
        assert "leaves encryption" in fetched.trail.notes[0]
        assert "authorization" not in plain.requests[0].headers
        with pytest.raises(Refused, match="unencrypted"):
            await get(f"https://site.example:{server.port}/", network, method="POST", body="secret")
        assert len(plain.requests) == 1


# ---- content


RUSSIAN = "Съешь же ещё этих мягких французских булок, да выпей чаю. Привет всем, кто читает эту страницу сегодня вечером. "


@pytest.mark.parametrize(
    ("words", "encoding", "type_", "charset"),
    [
        ("“Grüße”", "cp1252", "text/html; charset=latin1", "cp1252"),
        ("\ufeffGrüße", "utf-16-le", "text/html", "utf-16-le"),
        ('<meta http-equiv=content-type content="text/html; charset=euc-jp">日本語', "euc-jp", "text/html", "euc_jp"),
        ("Grüße", "utf-8", "text/html; charset=no-such-thing", "utf-8"),
        (RUSSIAN * 5, "cp1251", "text/plain", "cp1251"),
    ],
)
async def test_text_is_decoded_by_declared_or_detected_charset(words: str, encoding: str, type_: str, charset: str) -> None:
    with web_server({"/": answer(words.encode(encoding), type_=type_)}) as server:
        reading = read_answer(await get(f"{server.url}/"), seconds=5)
    assert reading.charset == charset
    assert words.rpartition(">")[2].strip("\ufeff ") in reading.text


PAGE = """<!doctype html><html lang="en"><head><title>Owls | The Night Paper</title><meta name="description" content="How owls hunt.">
<meta name="author" content="Ann Lee"><meta property="article:published_time" content="2024-03-02T08:00:00Z"></head><body>
<nav><a href="/">Home</a> <a href="/">Home again</a> <a href="#top">Top</a> <a href="javascript:alert(1)">No</a></nav>
<article><h1>How owls hunt</h1><p>An owl hears a mouse under the snow, from far away and in the dark of the night.</p>
<p>Its feathers make no sound, as <a href="../study?id=3#page">a study</a> and <a href="http://u:p@x.example/">others</a> have shown.</p>
</article>
<script>track()</script><footer>All rights reserved</footer></body></html>"""


async def test_main_text_title_metadata_and_links_of_a_page() -> None:
    with web_server({"/news/owls": answer(PAGE, type_="text/html; charset=utf-8")}) as server:
        page = read_answer(await get(f"{server.url}/news/owls"), seconds=10)
        assert page.title == "How owls hunt"
        assert "An owl hears a mouse under the snow" in page.text
        assert "track()" not in page.text
        assert (page.about["description"], page.about["author"], page.about["date"], page.about["language"]) == (
            "How owls hunt.", "Ann Lee", "2024-03-02", "en",
        )  # fmt: skip
        assert page.links == [{"url": f"{server.url}/", "text": "Home"}, {"url": f"{server.url}/study?id=3", "text": "a study"}]


def pdf(text: str) -> bytes:
    """A minimal PDF of one page with this text."""
    stream = f"BT /F1 24 Tf 72 700 Td ({text}) Tj ET"
    objects = (
        "<< /Type /Catalog /Pages 2 0 R >>",
        "<< /Type /Pages /Count 1 /Kids [4 0 R] >>",
        "<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
        "<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Resources << /Font << /F1 3 0 R >> >> /Contents 5 0 R >>",
        f"<< /Length {len(stream)} >>\nstream\n{stream}\nendstream",
    )
    body = "".join(f"{number} 0 obj\n{one}\nendobj\n" for number, one in enumerate(objects, 1))
    return f"%PDF-1.4\n{body}trailer << /Size 6 /Root 1 0 R >>\nstartxref\n0\n%%EOF\n".encode()  # without a table of places


async def test_text_of_a_pdf_is_extracted_or_the_reason_is_noted() -> None:
    routes = {"/whole": pdf("Owls hunt"), "/none": b"%PDF-"}
    with web_server({path: answer(content, type_="application/octet-stream") for path, content in routes.items()}) as server:
        whole, none = [read_answer(await get(f"{server.url}{path}"), seconds=10) for path in routes]
    assert (whole.kind, whole.text) == ("pdf", "Owls hunt")
    assert "The pdf could not be read to its end" in none.notes[0]
