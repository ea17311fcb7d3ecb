"""MCP resources: the whole returns of delegations, and the files that are their artifacts. Nothing else.

A file is served because a recorded return names it, never because a client names a path. Read only, and bounded.
"""

import base64
import mimetypes
import os
from pathlib import Path
from urllib.parse import unquote_to_bytes, urlsplit

from mcp.shared.exceptions import MCPError
from mcp_types import (
    INVALID_PARAMS,
    BlobResourceContents,
    ListResourcesResult,
    ListResourceTemplatesResult,
    ReadResourceResult,
    Resource,
    ResourceTemplate,
    TextResourceContents,
)

from remit.core.delegate_requests import json_text
from remit.core.errors import RemitError
from remit.core.ids import is_session_id
from remit.core.jsonable import clean_text
from remit.core.record import HistoryQuery, Record
from remit.core.result import Artifact
from remit.server.mcp.delegations import LOCAL
from remit.server.service import Call, Service
from remit.system.threads import off_loop

RETURNS = "remit://delegations/"
NEWEST = 200
"""Artifacts of this many newest delegations are listed and readable."""
LISTED = 100
LARGEST_BYTES = 1024 * 1024


class Resources:
    def __init__(self, service: Service) -> None:
        self._remit = service.remit
        self._service = service

    async def listed(self, call: Call = LOCAL) -> ListResourcesResult:
        artifacts = {path: artifact for path, (artifact, _) in (await off_loop(self._artifacts, call)).items()}
        return ListResourcesResult(
            resources=[
                Resource(
                    name=clean_text(path),
                    uri=(self._remit.root / path).as_uri(),
                    description=clean_text(artifact.summary or artifact.type),
                    mime_type=mimetypes.guess_type(path)[0],
                    size=artifact.size,
                )
                for path, artifact in list(artifacts.items())[:LISTED]
            ]
        )

    async def templates(self) -> ListResourceTemplatesResult:
        template = ResourceTemplate(
            name="return",
            title="The return of a delegation",
            uri_template=f"{RETURNS}{{session_id}}",
            description="Whole, however large, as JSON.",
            mime_type="application/json",
        )
        return ListResourceTemplatesResult(resource_templates=[template])

    async def read(self, uri: str, call: Call = LOCAL) -> ReadResourceResult:
        if uri.startswith(RETURNS):
            return await self._return(uri, call)
        path = _path_of(uri, self._remit.root)
        named = None if path is None else (await off_loop(self._artifacts, call)).get(path)
        if path is None or named is None:
            raise _none(uri)
        data = await off_loop(self._service.artifact_content, named[1], path, LARGEST_BYTES)
        if data is None:
            raise _none(uri)
        if len(data) > LARGEST_BYTES:
            raise MCPError(code=INVALID_PARAMS, message=f"{clean_text(path)} is larger than {LARGEST_BYTES} bytes: open the file itself.")
        kind = mimetypes.guess_type(path)[0]
        try:
            return ReadResourceResult(contents=[TextResourceContents(uri=uri, mime_type=kind or "text/plain", text=data.decode())])
        except UnicodeDecodeError:
            blob = base64.b64encode(data).decode()
            return ReadResourceResult(contents=[BlobResourceContents(uri=uri, mime_type=kind, blob=blob)])

    async def _return(self, uri: str, call: Call) -> ReadResourceResult:
        session_id = uri.removeprefix(RETURNS)
        try:
            record = await self._service.record(call, session_id) if is_session_id(session_id) else None
        except RemitError:
            record = None
        if record is None or record.result is None:
            raise _none(uri)
        text = json_text(record.result.to_dict())
        return ReadResourceResult(contents=[TextResourceContents(uri=uri, mime_type="application/json", text=text)])

    def _artifacts(self, call: Call) -> dict[str, tuple[Artifact, Record]]:
        """By path, newest first: those that the caller may see."""
        found: dict[str, tuple[Artifact, Record]] = {}
        for record in self._remit.store.history(HistoryQuery(limit=NEWEST)):
            is_shown = record.result is not None and self._service.may_see(call, record)
            for artifact in record.result.artifacts if is_shown and record.result is not None else ():
                found.setdefault(artifact.path, (artifact, record))
        return found


def _path_of(uri: str, root: Path) -> str | None:
    """The path inside the project of a file URI."""
    try:
        parts = urlsplit(uri)
        inside = Path(os.fsdecode(unquote_to_bytes(parts.path))).relative_to(root)
    except ValueError:
        return None
    return inside.as_posix() if parts.scheme == "file" and not parts.netloc else None


def _none(uri: str) -> MCPError:
    return MCPError(code=INVALID_PARAMS, message=f"There is no resource {uri[:200]}; resources/list has those there are.")
