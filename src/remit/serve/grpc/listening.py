"""The certificates of the gRPC door, as its library takes them. Where it listens is `serve.listening`'s matter."""

import contextlib
import ssl

import grpc

from remit.core.errors import Misused
from remit.serve.listening import Certificates


class Renewing:
    """The server's certificate as its files are now: one that is renewed holds from the next connection on, without a restart."""

    def __init__(self, files: Certificates) -> None:
        self._files = files
        self._stamp = self._now()
        self._loaded = self._load()

    def credentials(self) -> grpc.ServerCredentials:
        """With a `client_ca` every caller must show a certificate that it signed."""
        asks = self._files.client_ca is not None
        return grpc.dynamic_ssl_server_credentials(self._loaded, self._renewed, require_client_authentication=asks)  # type: ignore[arg-type]

    def _renewed(self) -> grpc.ServerCertificateConfiguration | None:
        """Asked at each connection, on a thread of gRPC's. Half-written files are no reason to turn callers away."""
        stamp = self._now()
        if stamp == self._stamp:
            return None
        try:
            self._loaded = self._load()
        except Misused:
            return None
        self._stamp = stamp
        return self._loaded

    def _now(self) -> tuple[int, ...]:
        found: list[int] = []
        for path in (self._files.certificate, self._files.key, self._files.client_ca):
            with contextlib.suppress(OSError):
                if path is not None:
                    known = path.stat()
                    found += [known.st_ino, known.st_mtime_ns, known.st_size]
        return tuple(found)

    def _load(self) -> grpc.ServerCertificateConfiguration:
        files = self._files
        try:
            checked = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            checked.load_cert_chain(files.certificate, files.key, password=lambda: b"")  # never asked at a terminal
            if files.client_ca is not None:
                checked.load_verify_locations(files.client_ca)
            authority = None if files.client_ca is None else files.client_ca.read_bytes()
            pair = (files.key.read_bytes(), files.certificate.read_bytes())
        except (OSError, ValueError) as error:  # an SSLError is an OSError
            raise Misused(
                f"The certificate {files.certificate} or its key cannot be used: {error}.",
                advice="Both are PEM files, the key without a password: serve.tls_certificate, serve.tls_key, serve.client_ca.",
            ) from None
        return grpc.ssl_server_certificate_configuration([pair], authority)
