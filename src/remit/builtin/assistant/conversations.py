"""The conversations of a project: `.remit/conversations/ID.jsonl`, one append-only file each.

    conversations = Conversations(root)
    with conversations.new("Hello").writing() as conversation: conversation.append(…)
    conversations.open("latest"); conversations.open("conv_17"); conversations.list()

Independent of models and delegations. Blocking, and quick. The folder may come from a clone: links are not followed, pipes not awaited,
huge files not read, and the listing shows unreadable ones with the reason."""

import contextlib
import fcntl
import os
import re
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from dataclasses import fields as dataclass_fields
from functools import cache
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, TypeAdapter
from pydantic_core import from_json, to_json

from remit.core.errors import Failed, Misused, Refused, RemitError, Unavailable
from remit.core.ids import new_session_id
from remit.core.jsonable import clean_text, to_jsonable
from remit.core.model_messages import Message, Reply, ToolResult, UserMessage
from remit.core.redaction import Shape, redact_json, redact_parameters
from remit.core.text import one_line, plural
from remit.system.beneath import open_regular
from remit.system.files import make_folder, write_all

# ---- lines of a file

VERSION = 1
_OURS: Shape = dict.fromkeys(("kind", "version", "at", "id", "created", "session", "root", "call_id", "model", "is_error", "principal"))
"""Fields that remit reads back: never redacted."""
_Moment = Annotated[float, Field(strict=True, ge=0, lt=1e11)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Header:
    """The first line."""

    conversation_id: str
    title: str = ""
    created: _Moment
    model: str = ""
    principal: str = ""
    """The authenticated principal that owns it; empty: the owner of the project."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """A delegation started to answer a message. All lines up to the next one belong to it."""

    at: _Moment
    session_id: str
    root_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageLine:
    """A message between the person, the model and its tools."""

    at: _Moment
    message: Message
    by: str = ""
    """`remit` if remit, not the person, wrote it to the model."""
    stopped: str = ""
    """Why an incomplete reply ended."""
    session_id: str = ""
    """The delegation that gave a result."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CallLine:
    """A call has become a delegation."""

    at: _Moment
    call_id: str
    session_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StopLine:
    """A turn ended before the model had answered. The next turn adds the results of its calls, and this as a reply."""

    at: _Moment
    text: str
    """The reply so far."""
    why: str = ""


Line = Header | Turn | MessageLine | CallLine | StopLine
_KINDS: dict[str, type[Any]] = {
    "conversation": Header, "turn": Turn, "said": UserMessage, "reply": Reply, "result": ToolResult, "started": CallLine,
    "stopped": StopLine,
}  # fmt: skip
_KIND_OF = {shape: kind for kind, shape in _KINDS.items()}
_FORMER_KINDS = (b'{"kind":"title"', b'{"kind":"spent"', b'{"kind":"compacted"')
"""Written by earlier versions, and ignored."""
_NAMES = {"id": "conversation_id", "session": "session_id", "root": "root_id"}
"""Field names in the file, if different."""
_IN_FILE = {name: written for written, name in _NAMES.items()}
_OMITTED_IF_EMPTY = ("by", "stopped", "session_id", "principal")


@cache
def _adapter(kind: str) -> TypeAdapter[Any]:
    return TypeAdapter(_KINDS.get(kind, MessageLine))


def encode_line(line: Line) -> bytes:
    """A line of JSON with its newline. Secrets are redacted, as in every record."""
    values = {**({"version": VERSION} if isinstance(line, Header) else {}), **_values(line)}
    shape: Any = line
    if isinstance(line, MessageLine):
        shape = values.pop("message")
        values |= _values(shape)
    if isinstance(shape, Reply):
        del values["raw"]  # a provider needs it only within its turn, and no turn is continued from a file
        values["calls"] = [
            {**_values(call), "arguments": call.arguments if isinstance(call.arguments, str) else redact_parameters(call.arguments)}
            for call in shape.calls
        ]
    fields = {_IN_FILE.get(name, name): value for name, value in values.items() if value or name not in _OMITTED_IF_EMPTY}
    fields = to_jsonable({"kind": _KIND_OF[type(shape)], **fields})
    return redact_json(fields, to_json(fields), ours=_OURS).replace(b"\n", b" ") + b"\n"


def _values(one: Any) -> dict[str, Any]:
    return {each.name: getattr(one, each.name) for each in dataclass_fields(one)}


def decode_line(data: bytes) -> Line:
    """Raises `ValueError` for anything that is not a line of a conversation."""
    try:
        fields = from_json(data)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    if not isinstance(fields, dict) or fields.get("kind") not in _KINDS:
        raise ValueError("not a line of a conversation")
    values = {_NAMES.get(name, name): value for name, value in fields.items() if name != "raw"}
    found: Any = _adapter(fields["kind"]).validate_python(values)
    if isinstance(found, UserMessage | Reply | ToolResult):
        found = _adapter("spoken").validate_python({**values, "message": found})
    return found  # type: ignore[no-any-return]


# ---- files

MAX_BYTES = 16 * 1024 * 1024
"""Maximum size of a conversation: read in a fraction of a second, and far more than a model could read."""
_HEADER_BYTES = 64 * 1024


def _open(path: Path, flags: int = os.O_RDONLY) -> int:
    """Raises `Misused` if the file does not exist, `Failed` if it is not a regular file."""
    try:
        return open_regular(path, flags)
    except FileNotFoundError:
        raise _unknown(path.stem) from None
    except OSError as error:
        raise Failed(f"{path.name} is not a readable file: {error.strerror}.", advice=f"Move it away: {path}") from None


def _read_start(path: Path, most: int) -> bytes:
    with os.fdopen(_open(path), "rb") as file:
        return file.read(most)


def _unknown(name: str) -> Misused:
    return Misused(f"There is no conversation {name!r:.60}.", code="INVALID_TARGET", advice="`remit conversations` lists them.")


@contextlib.contextmanager
def _writes(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        message = f"The conversation {path.stem} cannot be written: {error.strerror or error}."
        advice = f"Check free space and permissions of {path.parent}."
        raise Unavailable(message, code="STORE_UNAVAILABLE", advice=advice) from None


# ---- conversations

CONVERSATION_ID = re.compile(r"^conv_[0-9]{8,}_[a-z0-9]{6}\Z")
TITLE_CHARACTERS = 80
_LATEST = ("latest", "last")


@dataclass(frozen=True, slots=True, kw_only=True)
class Overview:
    """A conversation in a list."""

    conversation_id: str
    title: str
    created: float
    updated: float
    """Wall clock: when it was last written to."""
    messages: int = 0
    """Messages of the person."""
    delegations: int = 0
    model: str = ""
    fault: str = ""
    """Why it cannot be read."""


@dataclass(slots=True)
class Conversation:
    """A conversation as read and continued."""

    header: Header
    path: Path
    lines: list[Line] = field(default_factory=list)
    """All lines except the header."""
    unread: int = 0
    """Unreadable lines: cut off by a crash, or written by another program."""
    _size: int = 0
    """Size of the file when read."""
    _descriptor: int | None = None
    """The file, while it is locked for writing."""

    @property
    def conversation_id(self) -> str:
        return self.header.conversation_id

    @property
    def title(self) -> str:
        said = (message.text for message in self.messages if isinstance(message, UserMessage) and message.text.strip())
        return shorten_title(self.header.title) or shorten_title(next(said, "(no message yet)"))

    @property
    def spoken(self) -> list[MessageLine]:
        return [line for line in self.lines if isinstance(line, MessageLine)]

    @property
    def messages(self) -> list[Message]:
        """`spoken`, and the partial reply of the last turn if it was stopped."""
        stopped = self.stopped
        return [*(line.message for line in self.spoken), *([] if stopped is None else [reply_of(stopped)])]

    @property
    def stopped(self) -> StopLine | None:
        """Why the last turn has no answer, if it has none and the reason is known."""
        last = next((line for line in reversed(self.lines) if isinstance(line, MessageLine | StopLine | Turn)), None)
        return last if isinstance(last, StopLine) else None

    @property
    def turns(self) -> list[Turn]:
        return [line for line in self.lines if isinstance(line, Turn)]

    @property
    def started(self) -> list[CallLine]:
        """Calls that became delegations."""
        return [line for line in self.lines if isinstance(line, CallLine)]

    @property
    def history(self) -> list[Message]:
        """What a model is shown again: without remit's own messages of earlier turns."""
        return [line.message for line in self.spoken if not line.by]

    @property
    def notices(self) -> list[str]:
        """Messages for a person about the file itself."""
        return [f"{self.path.name}: {plural(self.unread, 'line')} unreadable and ignored."] if self.unread else []

    @contextlib.contextmanager
    def writing(self) -> Iterator["Conversation"]:
        """Lock it for appending; it is read again if another process has written meanwhile. Raises `Refused` while another process has it.

        The kernel releases the lock when the process dies. A killed process loses at most the line that it was writing: the rest of it
        stays in the file, and readers skip it."""
        descriptor = _open(self.path, os.O_RDWR | os.O_APPEND)
        try:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                message = f"The conversation {self.path.stem} is answering another message."
                advice = "Wait until it is answered, stop it (`remit status`, `remit cancel`), or begin a new conversation."
                raise Refused(message, code="INVALID_OPERATION", advice=advice) from None
            found = os.fstat(descriptor)
            if found.st_nlink == 0:
                raise _unknown(self.path.stem)
            if found.st_size and os.pread(descriptor, 1, found.st_size - 1) != b"\n":
                write_all(descriptor, b"\n")
            if os.fstat(descriptor).st_size != self._size:
                fresh = _read(self.path)
                self.header, self.lines, self.unread = fresh.header, fresh.lines, fresh.unread
            self._descriptor = descriptor
            try:
                yield self
            finally:
                self._descriptor, self._size = None, os.fstat(descriptor).st_size
        finally:
            # Unlock, not only close: a child forked meanwhile shares the open file and would keep the lock.
            fcntl.flock(descriptor, fcntl.LOCK_UN)
            os.close(descriptor)

    def append(self, line: Line) -> None:
        """Call it inside `writing`. The kernel has the line when this returns: the death of the process does not lose it."""
        if self._descriptor is None:
            raise Misused(f"{self.conversation_id} is not locked.", advice="Append inside `with conversation.writing():`.")
        data, size = encode_line(line), os.fstat(self._descriptor).st_size
        if size + len(data) > MAX_BYTES:
            message = f"The conversation {self.conversation_id} is full ({MAX_BYTES // 1024 // 1024} MB)."
            raise Refused(message, code="INVALID_OPERATION", advice="Begin a new one; this one can still be read.")
        with _writes(self.path):
            try:
                write_all(self._descriptor, data)
            except OSError:
                os.ftruncate(self._descriptor, size)
                raise
        self.lines.append(line)

    def sync(self) -> None:
        """Sync to disk, for `durability = "power"`. Blocking."""
        if self._descriptor is not None:
            os.fsync(self._descriptor)


class Conversations:
    """Those of the project at `root`."""

    def __init__(self, root: Path, principal: str = "") -> None:
        """`principal`: an authenticated one sees only its own conversations; empty: the owner of the project, who may open all."""
        self.root = root
        self.folder = root / ".remit" / "conversations"
        self._principal = principal

    def new(self, title: str = "", *, model: str = "") -> Conversation:
        """Its file appears with its first line."""
        now = time.time()
        name = f"conv_{new_session_id(now).removeprefix('sess_')}"
        path = self._path(name)
        header = Header(conversation_id=name, title=shorten_title(title), created=now, model=model, principal=self._principal)
        make_folder(self.root / ".remit")
        with _writes(path):
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            if self.folder.is_symlink():
                raise Failed(f"{self.folder} is a link.", advice="Remove it; remit makes a folder of that name.")
            with os.fdopen(open_regular(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL), "wb") as file:
                write_all(file.fileno(), encode_line(header))
        return Conversation(header=header, path=path)

    def open(self, named: str) -> Conversation:
        """By its id, a part of it, or `latest`."""
        return _read(self._path(self.find(named)))

    def list(self, limit: int = 1000) -> Sequence[Overview]:
        """Newest first; unreadable ones with the reason."""
        found = []
        for updated, name in self._visible()[:limit]:
            try:
                one = _read(self._path(name))
            except RemitError as error:
                found.append(Overview(conversation_id=name, title="", created=updated, updated=updated, fault=error.message))
                continue
            said = sum(isinstance(message, UserMessage) for message in one.history)
            header = one.header
            found.append(
                Overview(
                    conversation_id=name, title=one.title, created=header.created, updated=updated, messages=said,
                    delegations=len(one.started), model=header.model,
                )
            )  # fmt: skip
        return found

    def _path(self, conversation_id: str) -> Path:
        return self.folder / f"{conversation_id}.jsonl"

    def find(self, named: str) -> str:
        """The id of a name. Raises `Misused` with the candidates."""
        word = named.strip()
        ids = [conversation_id for _, conversation_id in self._visible()]
        if word in _LATEST and (own := next(filter(self._is_own, ids), None)) is not None:
            return own
        meant = [one for one in ids if word and word in one]
        if len(meant) > 1:
            advice = f"Write more of the id: {', '.join(meant[:5])}."
            raise Misused(f"{word} could mean {len(meant)} conversations.", code="INVALID_TARGET", advice=advice)
        if not meant:
            raise _unknown(word)
        return meant[0]

    def _visible(self) -> Sequence[tuple[float, str]]:
        """Conversations that the caller may open; others are not revealed."""
        found = self._ids()
        return found if not self._principal else [one for one in found if self._is_own(one[1])]

    def _is_own(self, conversation_id: str) -> bool:
        """By its first line. An unreadable one belongs to the owner of the project."""
        try:
            header = decode_line(_read_start(self._path(conversation_id), _HEADER_BYTES).partition(b"\n")[0])
        except (RemitError, ValueError):
            header = None
        return (header.principal if isinstance(header, Header) else "") == self._principal

    def _ids(self) -> Sequence[tuple[float, str]]:
        """With the time of the last write, newest first."""
        found = []
        with contextlib.suppress(OSError), os.scandir(self.folder) as entries:
            for entry in entries:
                name, _, suffix = entry.name.partition(".")
                if suffix == "jsonl" and CONVERSATION_ID.match(name):
                    with contextlib.suppress(OSError):
                        found.append((entry.stat(follow_symlinks=False).st_mtime, name))
        return sorted(found, reverse=True)


def _read(path: Path) -> Conversation:
    data = _read_start(path, MAX_BYTES + 1)
    if len(data) > MAX_BYTES:
        raise Failed(f"{path.name} is larger than a conversation can be ({MAX_BYTES} bytes).", advice=f"Move it away: {path}")
    lines: list[Line] = []
    unread = 0
    for line in data.split(b"\n"):
        if not line.strip() or line.startswith(_FORMER_KINDS):
            continue
        try:
            lines.append(decode_line(line))
        except ValueError:
            unread += 1
    if not lines or not isinstance(lines[0], Header) or lines[0].conversation_id != path.stem:
        raise Failed(f"{path.name} is not a conversation: its first line is not a header.", advice=f"Move it away: {path}")
    rest: list[Line] = [line for line in lines[1:] if not isinstance(line, Header)]
    return Conversation(header=lines[0], path=path, lines=rest, unread=unread + len(lines) - 1 - len(rest), _size=len(data))


def shorten_title(text: str) -> str:
    """One printable line."""
    return one_line(clean_text(text[: TITLE_CHARACTERS * 20]), TITLE_CHARACTERS)


def reply_of(stopped: StopLine) -> Reply:
    """The reply so far, with the reason why it ended."""
    note = f"[Stopped here: {stopped.why}]"
    return Reply(text=f"{stopped.text.rstrip()}\n\n{note}" if stopped.text.strip() else note)


# ---- as Markdown
