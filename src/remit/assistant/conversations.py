"""The conversations of a project: `.remit/conversations/ID.jsonl`, one file each, only ever appended to.

    kept = Conversations(root)
    with kept.new("Hello").writing() as pen: pen.append(…)
    kept.latest(); kept.open("conv_17"); kept.list(); kept.rename(…); kept.delete(…)

Files and values: knows no model and no delegation (`message` holds the conversation). Blocking, and quick. Whatever lies in the folder, the
listing shows it with its fault rather than fail. Used by the assistant and by the command line.
"""

import contextlib
import os
import re
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from remit.assistant.lines import Compacted, Header, Line, Spent, Spoken, Started, Stopped, Titled, Torn, Turn, decoded
from remit.assistant.storing import Pen, create_file, first_line, lines_of, read_file
from remit.core.errors import Failed, Misused, RemitError, Unavailable
from remit.core.ids import new_session_id
from remit.flow.plain import clean
from remit.models.messages import Message, Reply, Said
from remit.system.files import make_folder

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
            messages=sum(isinstance(line.message, Said) and not line.by for line in self.spoken),
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
    data = read_file(path)
    lines, unread = lines_of(data)
    if not lines or not isinstance(lines[0], Header) or lines[0].conversation_id != path.stem:
        raise Failed(f"{path.name} is no conversation: its first line does not say so.", advice=f"Move it away, or delete it: {path}")
    rest: list[Line] = [line for line in lines[1:] if not isinstance(line, Header)]
    return Conversation(header=lines[0], path=path, lines=rest, unread=unread + len(lines) - 1 - len(rest), _size=len(data))


def holder_of(path: Path) -> str:
    """Whose it is, as its first line says; empty: the owner's."""
    try:
        header = decoded(first_line(path))
    except (RemitError, ValueError):
        return ""
    return header.principal if isinstance(header, Header) else ""


def title_of(messages: Sequence[Message]) -> str:
    """From the first thing that was said."""
    return next((shortened_title(message.text) for message in messages if isinstance(message, Said) and message.text.strip()), UNTITLED)


def shortened_title(text: str) -> str:
    """One printable line."""
    printable = "".join(sign if sign.isprintable() else " " for sign in clean(text[: TITLE_CHARACTERS * 20]))
    line = " ".join(printable.split())
    return line if len(line) <= TITLE_CHARACTERS else line[: TITLE_CHARACTERS - 1].rstrip() + "…"


def reply_of(stopped: Stopped) -> Reply:
    """What was being said, and that it was not said to its end."""
    note = f"[Stopped here: {stopped.why}]"
    return Reply(text=f"{stopped.text.rstrip()}\n\n{note}" if stopped.text.strip() else note)


def last_reply(conversation: Conversation) -> str:
    """What the assistant said last, in words."""
    return next((one.text for one in reversed(conversation.messages) if isinstance(one, Reply) and one.text), "")
