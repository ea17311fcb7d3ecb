"""The conversations of a project: `.remit/conversations/ID.jsonl`, one file each, only ever appended to.

    kept = Conversations(root)
    with kept.new("Hello").writing() as pen: pen.append(…)
    kept.latest(); kept.open("conv_17"); kept.list(); kept.rename(…); kept.delete(…)

Files and values: knows no model and no delegation (`message` holds the conversation). Blocking, and quick. Whatever lies in the folder, the
listing shows it with its fault rather than fail. Used by the assistant and by the command line.
"""

import contextlib
import fcntl
import json
import os
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from dataclasses import fields as dataclass_fields
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, TypeAdapter
from pydantic_core import PydanticSerializationError, from_json, to_json

from remit.core.errors import Failed, Misused, Refused, RemitError, Unavailable
from remit.core.ids import new_session_id
from remit.core.jsonable import clean_text
from remit.core.redaction import Shape, redact_json, redact_parameters
from remit.models.messages import Message, Reply, ToolResult, UserMessage
from remit.system.beneath import open_regular
from remit.system.files import make_folder, write_all, write_beside

# ---- lines of a file

VERSION = 1
_OURS: Shape = dict.fromkeys(
    (
        *("kind", "version", "at", "id", "created", "session", "root", "call_id", "model"),
        *("count", "bytes", "kept", "tokens", "cost", "is_error", "principal"),
    )
)
"""What we say ourselves and must find again: never struck out."""
_Moment = Annotated[float, Field(strict=True, ge=0, lt=1e11)]
_Count = Annotated[int, Field(strict=True, ge=0, lt=10**15)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Header:
    """The first line."""

    conversation_id: str
    title: str = ""
    created: _Moment
    project: str = ""
    model: str = ""
    principal: str = ""
    """Whose it is, where that is an authenticated principal; empty: the owner's of the project."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """A message was taken up: by this delegation, of this tree. All lines up to the next one are of it."""

    at: _Moment
    session_id: str
    root_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Spoken:
    """A message between the person, the model and what it called."""

    at: _Moment
    message: Message
    by: str = ""
    """`remit`, where we said it to the model and not the person."""
    stopped: str = ""
    """Of a reply that did not come to its end: why."""
    session_id: str = ""
    """Of a result: the delegation that gave it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Started:
    """A call has become a delegation."""

    at: _Moment
    call_id: str
    session_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Stopped:
    """A turn ended before the model had answered. What became of its calls, and this as a reply, is added when the next one begins."""

    at: _Moment
    text: str
    """What it had said so far."""
    why: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Compacted:
    """The model is shown this summary instead of the first `count` messages; the file keeps them."""

    at: _Moment
    count: _Count
    summary: str
    by: str = ""
    """The model that wrote it, or `excerpt`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Titled:
    at: _Moment
    title: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Spent:
    """What a turn cost."""

    at: _Moment
    tokens: _Count
    cost: _Moment | None = None
    """None: the price is unknown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Torn:
    """The last line had been cut off by a crash; what there was of it is kept in a file beside this one."""

    at: _Moment
    size: _Count
    kept: str = ""


Line = Header | Turn | Spoken | Started | Stopped | Compacted | Titled | Spent | Torn
_KINDS: dict[str, type[Any]] = {
    "conversation": Header, "turn": Turn, "said": UserMessage, "reply": Reply, "result": ToolResult, "started": Started, "stopped": Stopped,
    "compacted": Compacted, "title": Titled, "spent": Spent, "torn": Torn,
}  # fmt: skip
_KIND_OF = {shape: kind for kind, shape in _KINDS.items()}
_MESSAGES = ("said", "reply", "result")
_NAMES = {"id": "conversation_id", "session": "session_id", "root": "root_id", "bytes": "size"}
"""What fields are called in a file, where that differs."""
_IN_FILE = {name: written for written, name in _NAMES.items()}
_ONLY_WHERE_SAID = ("by", "stopped", "session_id", "principal")


@cache
def _adapter(kind: str) -> TypeAdapter[Any]:
    return TypeAdapter(_KINDS.get(kind, Spoken))


def encoded(line: Line) -> bytes:
    """With the newline that makes it whole. Secrets are struck out, as they are of every record."""
    fields = _fields(line)
    try:
        data = to_json(fields)
    except (PydanticSerializationError, ValueError, RecursionError):  # half a surrogate pair, or what JSON cannot hold
        fields = _speakable(fields, 60)
        data = to_json(fields, fallback=repr)
    return redact_json(fields, data, ours=_OURS).replace(b"\n", b" ") + b"\n"


def _fields(line: Line) -> dict[str, Any]:
    shape, values = type(line), _values(line)
    if isinstance(line, Header):
        values["version"] = VERSION
    if isinstance(line, Spoken):
        message = values.pop("message")
        shape, values = type(message), {**values, **_values(message)}
    if isinstance(line, Spoken) and isinstance(line.message, Reply):
        del values["raw"]  # a provider wants it back only within the turn it was said in, and a turn is never gone on with from a file
        values["calls"] = [{**_values(call), "arguments": _arguments(call.arguments)} for call in line.message.calls]
    said = {name: value for name, value in values.items() if value or name not in _ONLY_WHERE_SAID}
    return {"kind": _KIND_OF[shape], **{_IN_FILE.get(name, name): value for name, value in said.items()}}


def _values(one: Any) -> dict[str, Any]:
    return {each.name: getattr(one, each.name) for each in dataclass_fields(one)}


def _arguments(given: Mapping[str, Any] | str) -> Any:
    return given if isinstance(given, str) else redact_parameters(given)


def _speakable(value: Any, levels: int) -> Any:
    if isinstance(value, str):
        return clean_text(value)
    if levels == 0:
        return "…"
    if isinstance(value, Mapping):
        return {clean_text(str(name)): _speakable(one, levels - 1) for name, one in value.items()}
    return [_speakable(one, levels - 1) for one in value] if isinstance(value, list | tuple) else value


def decoded(data: bytes) -> Line:
    """Raises `ValueError` for whatever is no line of ours."""
    try:
        fields = from_json(data)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    if not isinstance(fields, dict) or fields.get("kind") not in _KINDS:
        raise ValueError("it is no line of a conversation")
    kind, values = fields["kind"], {_NAMES.get(name, name): value for name, value in fields.items() if name != "raw"}
    found: Line | Message = _adapter(kind).validate_python(values)
    if kind in _MESSAGES:
        found = _adapter("").validate_python({**values, "message": found})
    return found  # type: ignore[return-value]


# ---- files
# Whatever is in the folder may have come with a clone: no link is followed, no pipe waited for, no huge file read. A line is with the
# kernel when `append` returns, so a killed process loses at most the one that was being written; the next writer keeps such a rest aside.

MAX_BYTES = 16 * 1024 * 1024
"""Of one conversation, in all: read in a fraction of a second, and far more than a model could."""
_NOTE_BYTES = 4096
_HEADER_BYTES = 64 * 1024


def _opened(path: Path, flags: int) -> int:
    """Raises `Misused` where there is no such file, `Failed` where it is not one of ours."""
    try:
        return open_regular(path, flags)
    except OSError as error:
        raise _cannot_open(path, error) from None


def _beginning(path: Path, most: int) -> bytes:
    with os.fdopen(_opened(path, os.O_RDONLY), "rb") as file:
        return file.read(most)


def create_file(path: Path, first: Line) -> None:
    """With its first line, or not at all. Raises `FileExistsError`."""
    descriptor = open_regular(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(encoded(first))
    except OSError:
        path.unlink(missing_ok=True)
        raise


def lines_of(data: bytes) -> tuple[list[Line], int]:
    """The lines, and how many there are that say nothing: a rest that a crash left, or what somebody else wrote."""
    found: list[Line] = []
    unread = 0
    for line in data.split(b"\n"):
        if line.strip():
            try:
                found.append(decoded(line))
            except ValueError:
                unread += 1
    return found, unread


class Pen:
    """The right to write to a conversation: one at a time, until it is put down. Freed by the kernel when its holder dies."""

    __slots__ = ("_descriptor", "_note", "path", "torn")

    def __init__(self, path: Path, session_id: str, at: float) -> None:
        """Raises `Refused` when another has it."""
        self.path = path
        self._note = path.with_suffix(".lock")
        self.torn: Torn | None = None
        self._descriptor = _locked(path, self._note)
        try:
            self._sign(session_id, at)
            self._mend(at)
        except BaseException:
            self.put_down()
            raise

    def append(self, line: Line) -> None:
        """With the kernel when this returns: the death of the process does not lose it."""
        data = encoded(line)
        size = self.size
        if size + len(data) > MAX_BYTES:
            raise Refused(
                f"The conversation {self.path.stem} is full ({MAX_BYTES // 1024 // 1024} MB).",
                code="INVALID_OPERATION",
                advice="Begin a new one; this one can still be read.",
            )
        try:
            write_all(self._descriptor, data)
        except OSError as error:
            with contextlib.suppress(OSError):
                os.ftruncate(self._descriptor, size)  # half a line would be taken for a crash
            raise _cannot("written", self.path, error) from None

    @property
    def size(self) -> int:
        return os.fstat(self._descriptor).st_size

    def sync(self) -> None:
        """To the disk: also a power cut does not lose it. Blocking."""
        os.fsync(self._descriptor)

    def put_down(self) -> None:
        if self._descriptor < 0:
            return
        with contextlib.suppress(OSError):
            self._note.unlink()
        # Unlocked by name and not only closed: a child forked meanwhile holds the same open file and would keep the lock.
        fcntl.flock(self._descriptor, fcntl.LOCK_UN)
        os.close(self._descriptor)
        self._descriptor = -1

    def unlink(self) -> None:
        """The file itself, and what lies beside it."""
        self.path.unlink()
        for rest in self.path.parent.glob(f"{self.path.stem}.torn*"):
            rest.unlink(missing_ok=True)

    def _sign(self, session_id: str, at: float) -> None:
        """Who has it, in words for others: only the lock decides."""
        with contextlib.suppress(OSError):
            descriptor = open_regular(self._note, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            with os.fdopen(descriptor, "wb") as file:
                file.write(json.dumps({"pid": os.getpid(), "session": session_id, "since": at}).encode())

    def _mend(self, at: float) -> None:
        """What a crash left of a last line is kept aside."""
        size = self.size
        # Larger ones are no conversations: to be deleted at most.
        rest = os.pread(self._descriptor, size, 0).rpartition(b"\n")[2] if size <= MAX_BYTES else b""
        if not rest:
            return
        try:
            decoded(rest)
        except ValueError:
            kept = write_beside(self.path.parent, f"{self.path.stem}.torn", rest)
            os.ftruncate(self._descriptor, size - len(rest))
            self.torn = Torn(at=at, size=len(rest), kept=kept.name)
            self.append(self.torn)
        else:
            write_all(self._descriptor, b"\n")  # it was whole but for its end


def _locked(path: Path, note: Path) -> int:
    descriptor = _opened(path, os.O_RDWR | os.O_APPEND)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.fstat(descriptor).st_nlink == 0:
            raise _unknown(path)
    except BlockingIOError:
        os.close(descriptor)
        raise _taken(path, note) from None
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _taken(path: Path, note: Path) -> Refused:
    pid, session_id, since = _signed(note)
    who = "another process" if pid is None else "this process" if pid == os.getpid() else f"process {pid}"
    stop = f", or stop that: remit cancel {session_id}" if session_id else ""
    return Refused(
        f"The conversation {path.stem} is open in {who}{since}.",
        code="INVALID_OPERATION",
        advice=f"Wait until its message is answered{stop}; or begin a new conversation.",
    )


def _signed(note: Path) -> tuple[int | None, str, str]:
    try:
        with os.fdopen(open_regular(note), "rb") as file:
            said = json.loads(file.read(_NOTE_BYTES))
        since = datetime.fromtimestamp(said["since"], UTC).astimezone().strftime(" since %H:%M:%S")
        return int(said["pid"]), str(said["session"])[:40], since
    except (OSError, ValueError, TypeError, KeyError, OverflowError):
        return None, "", ""


def _cannot_open(path: Path, error: OSError) -> RemitError:
    if isinstance(error, FileNotFoundError):
        return _unknown(path)
    if isinstance(error, IsADirectoryError):
        return _no_file(path)
    if path.is_symlink():
        return Failed(f"{path.name} is a link, and no conversation.", advice=f"Move it away: {path}")
    return _cannot("opened", path, error)


def _no_file(path: Path) -> Failed:
    return Failed(f"{path.name} is no file.", advice=f"Move it away: {path}")


def _unknown(path: Path) -> Misused:
    return Misused(f"There is no conversation {path.stem}.", code="INVALID_TARGET", advice="`remit conversations` lists them.")


def _cannot(verb: str, path: Path, error: OSError) -> Unavailable:
    return Unavailable(
        f"The conversation {path.stem} cannot be {verb}: {error.strerror or error}.",
        code="STORE_UNAVAILABLE",
        advice="Check free space and permissions of its folder.",
    )


# ---- conversations

CONVERSATION_ID = re.compile(r"^conv_[0-9]{8,}_[a-z0-9]{6}\Z")
TITLE_CHARACTERS = 80
UNTITLED = "(no message yet)"
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
    """Of the person."""
    delegations: int = 0
    tokens: int = 0
    cost: float | None = None
    """None: unknown, or nothing was asked yet."""
    model: str = ""
    fault: str = ""
    """Why it cannot be read, in words."""


@dataclass(slots=True)
class Conversation:
    """A conversation as it was read, and as it is written on."""

    header: Header
    path: Path
    lines: list[Line] = field(default_factory=list)
    """All but the header."""
    unread: int = 0
    """Lines that say nothing: left by a crash, or by somebody else."""
    _size: int = 0
    """Of the file, as it was read."""
    _pens: list[Pen] = field(default_factory=list, repr=False)

    @property
    def conversation_id(self) -> str:
        return self.header.conversation_id

    @property
    def title(self) -> str:
        named = [line.title for line in self.lines if isinstance(line, Titled)]
        return shortened_title(named[-1] if named else self.header.title) or title_of(self.messages)  # the file may come from anywhere

    @property
    def spoken(self) -> list[Spoken]:
        """All of it, also what stands before the model as a summary."""
        return [line for line in self.lines if isinstance(line, Spoken)]

    @property
    def messages(self) -> list[Message]:
        """`spoken`, and what was being said when the last turn was stopped."""
        stopped = self.stopped
        return [*(line.message for line in self.spoken), *([] if stopped is None else [reply_of(stopped)])]

    @property
    def stopped(self) -> Stopped | None:
        """Why the last turn has no answer, where it has none and that is known."""
        last = next((line for line in reversed(self.lines) if isinstance(line, Spoken | Stopped | Turn)), None)
        return last if isinstance(last, Stopped) else None

    @property
    def turns(self) -> list[Turn]:
        return [line for line in self.lines if isinstance(line, Turn)]

    @property
    def started(self) -> list[Started]:
        """Calls that became delegations."""
        return [line for line in self.lines if isinstance(line, Started)]

    @property
    def compacted(self) -> Compacted | None:
        """The summary that holds now."""
        found = [line for line in self.lines if isinstance(line, Compacted)]
        return found[-1] if found else None

    @property
    def notices(self) -> list[str]:
        """What a person should know of the file itself."""
        told = [
            f"A crash had cut off its last line; what there was of it is in {line.kept} ({line.size} bytes)."
            for line in self.lines
            if isinstance(line, Torn)
        ]
        if self.unread:
            told.append(f"{self.path.name}: {self.unread} line{' is' if self.unread == 1 else 's are'} unreadable and passed over.")
        return told

    @contextlib.contextmanager
    def writing(self, session_id: str = "", at: float | None = None) -> Iterator["Conversation"]:
        """Hold it: nobody else writes meanwhile. Read anew where another has written. Raises `Refused` naming who has it."""
        pen = Pen(self.path, session_id, time.time() if at is None else at)
        try:
            if pen.size != self._size:  # another has written since
                self._read_again()
            self._pens.append(pen)
            yield self
        finally:
            if pen in self._pens:
                self._pens.remove(pen)
                self._size = pen.size
            pen.put_down()

    def _read_again(self) -> None:
        fresh = _read(self.path)
        self.header, self.lines, self.unread, self._size = fresh.header, fresh.lines, fresh.unread, fresh._size

    def append(self, line: Line) -> None:
        """Kept when this returns. To be called while it is held (`writing`)."""
        if not self._pens:
            raise Misused(f"{self.conversation_id} is not held.", advice="Append inside of `with conversation.writing():`.")
        self._pens[-1].append(line)
        self.lines.append(line)

    def sync(self) -> None:
        """To the disk: for those whose `durability` is `power`. Blocking."""
        if self._pens:
            self._pens[-1].sync()

    def overview(self, updated: float) -> Overview:
        spent = [line for line in self.lines if isinstance(line, Spent)]
        costs = [line.cost for line in spent]
        return Overview(
            conversation_id=self.conversation_id,
            title=self.title,
            created=self.header.created,
            updated=updated,
            messages=sum(isinstance(line.message, UserMessage) and not line.by for line in self.spoken),
            delegations=len(self.started),
            tokens=sum(line.tokens for line in spent),
            cost=sum(cost for cost in costs if cost is not None) if costs and None not in costs else None,
            model=self.header.model,
        )


class Conversations:
    """Those of the project at `root`."""

    def __init__(self, root: Path, principal: str = "") -> None:
        """`principal`: who came in by a door, for whom there are its own alone; empty: whoever owns the project, who may open all."""
        self.root = root
        self.folder = root / ".remit" / "conversations"
        self._principal = principal

    def new(self, title: str = "", *, model: str = "", at: float | None = None) -> Conversation:
        now = time.time() if at is None else at
        make_folder(self.root / ".remit")
        try:
            self._make_folder()
            return self._created(shortened_title(title), model, now)
        except OSError as error:
            raise Unavailable(
                f"No conversation can be kept in {self.folder}: {error.strerror}.",
                code="STORE_UNAVAILABLE",
                advice="Check free space and permissions.",
            ) from None

    def _created(self, title: str, model: str, now: float) -> Conversation:
        while True:
            conversation_id = f"conv_{new_session_id(now).removeprefix('sess_')}"
            header = Header(
                conversation_id=conversation_id,
                title=title,
                created=now,
                project=self.root.name,
                model=model,
                principal=self._principal,
            )
            path = self.folder / f"{conversation_id}.jsonl"
            try:
                create_file(path, header)
            except FileExistsError:
                continue
            return Conversation(header=header, path=path)

    def open(self, named: str) -> Conversation:
        """By its id, the beginning of it (with or without `conv_`), its last six letters, or `latest`."""
        return _read(self._path(named))

    def latest(self) -> Conversation | None:
        """The one that was last written to, of those that can be read and are not somebody else's."""
        for _, conversation_id in self._ids():
            if self._is_own(conversation_id):
                with contextlib.suppress(RemitError):
                    return _read(self.folder / f"{conversation_id}.jsonl")
        return None

    def list(self, limit: int = 1000) -> Sequence[Overview]:
        """Newest first; what cannot be read among them, with its fault."""
        return [self._seen(conversation_id, updated) for updated, conversation_id in self._shown()[:limit]]

    def rename(self, named: str, title: str) -> Conversation:
        conversation = self.open(named)
        title = shortened_title(title)
        if not title:
            raise Misused("A title must have something in it.")
        with conversation.writing():
            conversation.append(Titled(at=time.time(), title=title))
        return conversation

    def delete(self, named: str) -> str:
        """Its id. Never while it is open; also of one that cannot be read."""
        path = self._path(named)
        try:
            pen = Pen(path, "", time.time())
        except Failed:  # a link, or no file at all
            try:
                path.unlink(missing_ok=True)
            except OSError as error:
                raise Unavailable(
                    f"{path} cannot be removed: {error.strerror}.", code="STORE_UNAVAILABLE", advice="Remove it by hand."
                ) from None
            return path.stem
        try:
            pen.unlink()
        finally:
            pen.put_down()
        return path.stem

    def _path(self, named: str) -> Path:
        return self.folder / f"{self.find(named)}.jsonl"

    def find(self, named: str) -> str:
        """The id that is meant. Raises `Misused`, naming those that could be."""
        word = named.strip()
        ids = [conversation_id for _, conversation_id in self._shown()]
        if word in ids:
            return word
        if word in _LATEST and (own := next(filter(self._is_own, ids), None)) is not None:
            return own
        is_sensible = bool(re.fullmatch(r"[a-z0-9_]{1,40}", word))
        meant = [one for one in ids if is_sensible and (one.startswith((word, f"conv_{word}")) or one.rpartition("_")[2].startswith(word))]
        if len(meant) == 1:
            return meant[0]
        if meant:
            some = ", ".join(meant[:5]) + (" …" if len(meant) > 5 else "")
            raise Misused(f"{len(meant)} conversations are meant by {word}: {some}.", code="INVALID_TARGET", advice="Write more of the id.")
        raise Misused(f"There is no conversation {word!r:.60}.", code="INVALID_TARGET", advice="`remit conversations` lists them.")

    def _shown(self) -> Sequence[tuple[float, str]]:
        """Those that whoever asks may open: of others it is not even said that they are there."""
        found = self._ids()
        return found if not self._principal else [one for one in found if self._is_own(one[1])]

    def _is_own(self, conversation_id: str) -> bool:
        """What cannot be read is the owner's to look at."""
        return holder_of(self.folder / f"{conversation_id}.jsonl") == self._principal

    def _ids(self) -> Sequence[tuple[float, str]]:
        """With the time each was last written to, newest first."""
        found = []
        try:
            with os.scandir(self.folder) as entries:
                for entry in entries:
                    name, dot, suffix = entry.name.partition(".")
                    if dot and suffix == "jsonl" and CONVERSATION_ID.match(name):
                        with contextlib.suppress(OSError):
                            found.append((entry.stat(follow_symlinks=False).st_mtime, name))
        except OSError:
            return []
        return sorted(found, reverse=True)

    def _seen(self, conversation_id: str, updated: float) -> Overview:
        try:
            return _read(self.folder / f"{conversation_id}.jsonl").overview(updated)
        except RemitError as error:
            return Overview(conversation_id=conversation_id, title="", created=updated, updated=updated, fault=error.message)

    def _make_folder(self) -> None:
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if self.folder.is_symlink():
            raise Failed(f"{self.folder} is a link.", advice="Remove it; remit makes a folder of that name.")


def _read(path: Path) -> Conversation:
    data = _beginning(path, MAX_BYTES + 1)
    if len(data) > MAX_BYTES:
        raise Failed(f"{path.name} has more bytes than a conversation can have ({MAX_BYTES}).", advice=f"Move it away: {path}")
    lines, unread = lines_of(data)
    if not lines or not isinstance(lines[0], Header) or lines[0].conversation_id != path.stem:
        raise Failed(f"{path.name} is no conversation: its first line does not say so.", advice=f"Move it away, or delete it: {path}")
    rest: list[Line] = [line for line in lines[1:] if not isinstance(line, Header)]
    return Conversation(header=lines[0], path=path, lines=rest, unread=unread + len(lines) - 1 - len(rest), _size=len(data))


def holder_of(path: Path) -> str:
    """Whose it is, as its first line says; empty: the owner's."""
    try:
        header = decoded(_beginning(path, _HEADER_BYTES).partition(b"\n")[0])
    except (RemitError, ValueError):
        return ""
    return header.principal if isinstance(header, Header) else ""


def title_of(messages: Sequence[Message]) -> str:
    """From the first thing that was said."""
    return next(
        (shortened_title(message.text) for message in messages if isinstance(message, UserMessage) and message.text.strip()), UNTITLED
    )


def shortened_title(text: str) -> str:
    """One printable line."""
    printable = "".join(sign if sign.isprintable() else " " for sign in clean_text(text[: TITLE_CHARACTERS * 20]))
    line = " ".join(printable.split())
    return line if len(line) <= TITLE_CHARACTERS else line[: TITLE_CHARACTERS - 1].rstrip() + "…"


def reply_of(stopped: Stopped) -> Reply:
    """What was being said, and that it was not said to its end."""
    note = f"[Stopped here: {stopped.why}]"
    return Reply(text=f"{stopped.text.rstrip()}\n\n{note}" if stopped.text.strip() else note)


def last_reply(conversation: Conversation) -> str:
    """What the assistant said last, in words."""
    return next((one.text for one in reversed(conversation.messages) if isinstance(one, Reply) and one.text), "")
