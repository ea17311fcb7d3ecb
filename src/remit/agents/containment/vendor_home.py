"""The home directory of a contained coding agent: a private copy with its vendor's credentials and minimal settings.

Created for each run below `$XDG_STATE_HOME/remit/vendors` and removed afterwards. Sessions are kept beside it, so that a later run can
resume them. After a run only refreshed credentials are written back: values of known keys that existed before."""

import contextlib
import hashlib
import json
import os
import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import tomlkit

from remit.core.errors import RemitError
from remit.system.beneath import open_regular
from remit.system.files import atomic_write, private_folder, temporary_folder, write_private
from remit.system.trust import state_folder

HIDDEN_VARIABLES = ("OPENCODE_CONFIG", "OPENCODE_CONFIG_DIR", "OPENCODE_MODELS_PATH", "XDG_RUNTIME_DIR")
"""Variables that name files which do not exist inside."""
_RUN, _SESSIONS = "run-", "sessions"
_LARGEST_BYTES = 1 << 20
_LONGEST_VALUE = 16 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Vendor:
    """Where a vendor's program keeps its files, and which of them a contained run gets."""

    variable: str
    """Environment variable that names its directory."""
    usual: str
    """Its directory below the home directory."""
    credentials: str
    """The file in it with the sign-in."""
    refreshed: frozenset[str]
    """Keys of that file that a refresh changes."""
    sessions: str
    """The directory in it that is kept for `resume`; empty: all of it."""
    settings: Callable[[Path, Mapping[str, str]], "Settings"]

    def folder(self, environment: Mapping[str, str]) -> Path:
        """Its directory on the host."""
        home = Path(environment.get("HOME", "/"))
        if not self.variable:
            return Path(environment.get("XDG_DATA_HOME") or home / ".local/share") / Path(self.usual).name
        return Path(environment.get(self.variable) or home / self.usual)


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    files: Mapping[str, str] = field(default_factory=dict)
    """By their path below the home directory."""
    addresses: tuple[str, ...] = ()
    """URLs of model services in them."""
    shown: Mapping[str, Path] = field(default_factory=dict)
    """Readable files and directories, by their path below the home directory."""


# ---- the vendors


def _claude(folder: Path, environment: Mapping[str, str]) -> Settings:
    is_own = "CLAUDE_CONFIG_DIR" in environment
    account = _json_of(folder / ".claude.json" if is_own else folder.parent / ".claude.json")
    sign_in: dict[str, Any] = {key: account[key] for key in ("oauthAccount", "userID") if key in account}
    model = _json_of(folder / "settings.json").get("model")
    files = {".claude/.claude.json": json.dumps({**sign_in, "hasCompletedOnboarding": True})}
    if isinstance(model, str):
        files[".claude/settings.json"] = json.dumps({"model": model})
    return Settings(files=files)


_CODEX_KEYS = ("model", "model_provider", "model_reasoning_effort", "model_reasoning_summary", "model_verbosity", "forced_login_method")
_CODEX_PROVIDER_KEYS = (
    "name", "base_url", "wire_api", "env_key", "query_params", "http_headers", "env_http_headers", "request_max_retries",
    "stream_max_retries", "stream_idle_timeout_ms", "requires_openai_auth",
)  # fmt: skip


def _codex(folder: Path, environment: Mapping[str, str]) -> Settings:
    try:
        given = tomllib.loads(_text_of(folder / "config.toml"))
    except tomllib.TOMLDecodeError:
        given = {}
    config: dict[str, Any] = {key: given[key] for key in _CODEX_KEYS if isinstance(given.get(key), str)}
    provider = _table(_table(given.get("model_providers")).get(str(given.get("model_provider"))))
    if provider:
        config["model_providers"] = {config["model_provider"]: {key: provider[key] for key in _CODEX_PROVIDER_KEYS if key in provider}}
    address = provider.get("base_url")
    return Settings(files={".codex/config.toml": tomlkit.dumps(config)}, addresses=(address,) if isinstance(address, str) else ())


_OPENCODE_KEYS = ("provider", "model", "small_model", "enabled_providers", "disabled_providers")


def _opencode(folder: Path, environment: Mapping[str, str]) -> Settings:
    """`folder` is its data directory; its settings are in the settings directory, or in `OPENCODE_CONFIG`."""
    home = Path(environment.get("HOME", "/"))
    config = Path(environment.get("XDG_CONFIG_HOME") or home / ".config") / "opencode"
    cache = Path(environment.get("XDG_CACHE_HOME") or home / ".cache") / "opencode"
    given = _json_of(config / "opencode.json") | _json_of(Path(environment.get("OPENCODE_CONFIG") or config / "config.json"))
    kept = {key: given[key] for key in _OPENCODE_KEYS if key in given}
    options = [_table(_table(one).get("options")) for one in _table(kept.get("provider")).values()]
    addresses = tuple(one["baseURL"] for one in options if isinstance(one.get("baseURL"), str))
    # Packages of providers and plugins' types are installed beforehand: a container has no package registry.
    packages = {name: config / name for name in ("package.json", "package-lock.json", "bun.lock", "node_modules")}
    shown = {f".config/opencode/{name}": path for name, path in packages.items() if path.exists()}
    shown |= {f".cache/opencode/{path.name}": path for path in (cache / "node_modules", cache / "package.json") if path.exists()}
    models = Path(environment.get("OPENCODE_MODELS_PATH") or cache / "models.json")
    if models.is_file():
        shown[".cache/opencode/models.json"] = models
    return Settings(files={".config/opencode/opencode.json": json.dumps(kept)}, addresses=addresses, shown=shown)


VENDORS: Mapping[str, Vendor] = {
    "claude": Vendor(
        variable="CLAUDE_CONFIG_DIR", usual=".claude", credentials=".credentials.json", sessions="projects", settings=_claude,
        refreshed=frozenset({"accessToken", "refreshToken", "expiresAt"}),
    ),
    "codex": Vendor(
        variable="CODEX_HOME", usual=".codex", credentials="auth.json", sessions="sessions", settings=_codex,
        refreshed=frozenset({"id_token", "access_token", "refresh_token", "last_refresh"}),
    ),
    "opencode": Vendor(
        variable="", usual=".local/share/opencode", credentials="auth.json", sessions="", settings=_opencode,
        refreshed=frozenset({"refresh", "access", "expires"}),
    ),
}  # fmt: skip


# ---- a home directory


class VendorHome:
    """The home directory of one run."""

    def __init__(self, folder: Path, kept: Path, vendor: Vendor | None, environment: Mapping[str, str]) -> None:
        self.home = folder / "home"
        self.link = folder / "link"
        """A socket for the first program inside."""
        self._kept = kept
        self._vendor = vendor
        self._settings = Settings()
        self.writable: tuple[Path, ...] = (self.home,)
        if vendor is not None:
            source = vendor.folder(environment)
            self._settings, self.writable = vendor.settings(source, environment), (self.home, kept)
            self._original = Path(os.path.realpath(source / vendor.credentials))  # which may be a link
            self._copy = (self.home / vendor.usual if vendor.sessions else kept) / vendor.credentials
            self._base = self._copy.with_name(f".{vendor.credentials}.copied")
            """What the copy was made of."""
        self.addresses = self._settings.addresses
        self.read_only = tuple(path.resolve() for path in self._settings.shown.values())

    def fill(self) -> None:
        """Write the files of the run."""
        private_folder(self.home)
        for name, text in self._settings.files.items():
            private_folder((self.home / name).parent)
            write_private(self.home / name, text.encode(), fsync=False)
        for name, path in self._settings.shown.items():
            self._link_to(path.resolve(), name)
        if self._vendor is None:
            return
        self._link_to(private_folder(self._kept), f"{self._vendor.usual}/{self._vendor.sessions}".rstrip("/"))
        self.write_back()  # of a copy that another run shares, or that a killed one left
        try:
            self._keep(_bytes_of(self._original), self._copy, self._base)
        except OSError:
            self._copy.unlink(missing_ok=True)
            self._base.unlink(missing_ok=True)

    def _link_to(self, path: Path, name: str) -> None:
        private_folder((self.home / name).parent)
        (self.home / name).symlink_to(path)

    def environment(self) -> dict[str, str]:
        folders = {"CONFIG": ".config", "DATA": ".local/share", "CACHE": ".cache", "STATE": ".local/state"}
        variables = {"HOME": str(self.home), **{f"XDG_{name}_HOME": str(self.home / path) for name, path in folders.items()}}
        if self._vendor is not None and self._vendor.variable:
            variables[self._vendor.variable] = str(self.home / self._vendor.usual)
        return variables

    @staticmethod
    def _keep(data: bytes, *paths: Path) -> None:
        for path in paths:
            write_private(path, data, fsync=False)

    def write_back(self) -> None:
        """Write refreshed credentials back, if the vendor's own file is unchanged."""
        if self._vendor is None:
            return
        with contextlib.suppress(OSError, ValueError, RecursionError, RemitError):  # the agent may have written anything there
            original = _bytes_of(self._original)
            if original != _bytes_of(self._base):
                return
            before = json.loads(original)
            after = refresh_keys(before, json.loads(_bytes_of(self._copy)), self._vendor.refreshed)
            if after != before:
                refreshed = json.dumps(after, indent=2).encode()
                atomic_write(self._original, refreshed)
                self._keep(refreshed, self._base)


@contextlib.contextmanager
def vendor_home(vendor: str | None, owner: tuple[str, ...], environment: Mapping[str, str]) -> Iterator[VendorHome]:
    """For one run, removed afterwards together with left-overs of killed processes. `owner`: project and agent, whose sessions are
    separate.

    `environment`: the agent's environment without containment."""
    parent = private_folder(private_folder(state_folder() / "vendors") / _folder_name(vendor, owner))
    with temporary_folder(_RUN, parent) as folder:
        made = VendorHome(folder, parent / _SESSIONS, VENDORS.get(vendor or ""), environment)
        made.fill()
        yield made
        made.write_back()


def sessions_folder(vendor: str, owner: tuple[str, ...]) -> Path:
    """Where the sessions of a contained agent are kept."""
    return state_folder() / "vendors" / _folder_name(vendor, owner) / _SESSIONS


def _folder_name(vendor: str | None, owner: tuple[str, ...]) -> str:
    return f"{vendor or 'command'}-{hashlib.sha256(chr(0).join(owner).encode('utf-8', 'surrogateescape')).hexdigest()[:16]}"


def refresh_keys(before: Any, after: Any, names: frozenset[str]) -> Any:
    """`before` with the values of these keys from `after`, if they existed before with the same type."""
    if not isinstance(before, dict) or not isinstance(after, dict):
        return before
    made = {}
    for key, value in before.items():
        new = after.get(key)
        if isinstance(value, dict):
            made[key] = refresh_keys(value, new, names)
        else:
            made[key] = new if key in names and type(new) is type(value) and _is_plain(new) else value
    return made


def _is_plain(value: Any) -> bool:
    if isinstance(value, str):
        return 0 < len(value) <= _LONGEST_VALUE and value.isascii() and value.isprintable()
    return isinstance(value, int) and not isinstance(value, bool)


def _bytes_of(path: Path) -> bytes:
    """Without following a final link, which an agent may have created."""
    with os.fdopen(open_regular(path), "rb") as opened:
        return opened.read(_LARGEST_BYTES)


def _text_of(path: Path) -> str:
    try:
        return _bytes_of(Path(os.path.realpath(path))).decode()
    except (OSError, UnicodeError):
        return ""


def _json_of(path: Path) -> dict[str, Any]:
    try:
        return _table(json.loads(_text_of(path) or "{}"))
    except ValueError:
        return {}


def _table(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
