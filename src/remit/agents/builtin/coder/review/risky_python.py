"""Risky calls in Python, by its syntax tree: names are followed through imports, so that `from subprocess import run as r` hides nothing.

Pure: a file in, findings on its added lines out. Called by `risky`.
"""

import ast
import re
import warnings
from collections.abc import Callable, Iterator

from remit.agents.builtin.coder.review.findings import Finding, Severity
from remit.agents.builtin.coder.review.matter import ChangedFile

H, M, L = Severity.HIGH, Severity.MEDIUM, Severity.LOW
Told = tuple[str, Severity, str, str]
_SQL = re.compile(
    r"^\s{0,40}(?:select\s.{0,400}\sfrom\s|insert\s+into\s|update\s.{1,200}\sset\s|delete\s+from\s|drop\s+table\s)",
    re.IGNORECASE | re.DOTALL,
)
_GUARDED = re.compile(r"(?i)\b(?:is_)?(?:admin|auth|authenticated|authori[sz]ed|permission\w{0,3}|token|password|owner|role|allowed)\b")
_SECRET_NAME = re.compile(r"(?i)token|secret|passw|nonce|salt|session_?id|otp|api_?key")
_PICKLES = frozenset(
    {
        "pickle.loads",
        "pickle.load",
        "pickle.Unpickler",
        "dill.loads",
        "dill.load",
        "marshal.loads",
        "shelve.open",
        "jsonpickle.decode",
        "joblib.load",
        "cloudpickle.loads",
        "pandas.read_pickle",
    }
)
_HTTP = re.compile(r"^(?:requests|httpx)\.(?:get|post|put|patch|delete|head|options|request)$")
_SUBPROCESS = frozenset(
    {f"subprocess.{name}" for name in ("run", "call", "check_call", "check_output", "Popen", "getoutput", "getstatusoutput")}
    | {"asyncio.create_subprocess_shell"}
)


def tree_of(text: str) -> ast.Module | None:
    """None where it is not Python that this interpreter can read."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ast.parse(text.encode("utf-8", "replace"))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def findings(file: ChangedFile) -> list[Finding] | None:
    """None where the file cannot be read as Python."""
    tree = tree_of(file.after or "")
    if tree is None:
        return None
    try:
        return list(_of_tree(file, tree))
    except RecursionError:
        return None


def _of_tree(file: ChangedFile, tree: ast.Module) -> Iterator[Finding]:
    names = _imports(tree)
    for node in ast.walk(tree):
        told: list[Told | None] = []
        if isinstance(node, ast.Call):
            name = _dotted(node.func, names)
            told = [rule(node, name) for rule in _CALL_RULES]
        elif isinstance(node, ast.ExceptHandler):
            told = [_swallowed(node)]
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            told = [_weak_random(node, names), _unchecked_tls(node, names)]
        elif isinstance(node, ast.Assert):
            told = [_assert_guards(node)]
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            told = [_mutable_default(node)]
        for one in filter(None, told):
            yield from _placed(file, one, node)


def _placed(file: ChangedFile, told: Told, node: ast.AST) -> Iterator[Finding]:
    start = getattr(node, "lineno", 1)
    end = getattr(node, "end_lineno", None) or start
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        end = node.body[0].lineno - 1 if node.body[0].lineno > start else start
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        start = node.func.end_lineno or start  # in a chain of calls, the line of this one
    line = file.first_changed(start, max(start, end))
    if line is None:
        return
    rule, severity, message, suggestion = told
    column = getattr(node, "col_offset", 0) + 1 if line == getattr(node, "lineno", 0) else None
    yield Finding(
        severity=severity,
        category="correctness" if rule in ("swallowed", "mutable-default") else "security",
        rule=rule,
        file=file.path,
        line=line,
        column=column,
        message=message,
        suggestion=suggestion,
        snippet=file.added[line],
    )


def _imports(tree: ast.Module) -> dict[str, str]:
    names = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                names[alias.asname or alias.name.partition(".")[0]] = alias.name if alias.asname else alias.name.partition(".")[0]
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names |= {alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names}
    return names


def _dotted(node: ast.expr, names: dict[str, str]) -> str:
    parts: list[str] = []
    while isinstance(node, ast.Attribute) and len(parts) < 10:
        parts.append(node.attr)
        node = node.value
    if isinstance(node, ast.Name):
        return ".".join([names.get(node.id, node.id), *reversed(parts)])
    return "." + ".".join(reversed(parts))


def _word(call: ast.Call, name: str) -> ast.expr | None:
    return next((keyword.value for keyword in call.keywords if keyword.arg == name), None)


def _is(node: ast.expr | None, value: object) -> bool:
    return isinstance(node, ast.Constant) and node.value is value


def _constant(node: ast.expr | None) -> bool:
    return isinstance(node, ast.Constant) or (isinstance(node, ast.List | ast.Tuple) and all(map(_constant, node.elts)))


def _first(call: ast.Call) -> ast.expr | None:
    return call.args[0] if call.args else None


def _made_of_text(node: ast.expr | None) -> str | None:
    """The constant part of text that is put together; None where it is not put together."""
    if isinstance(node, ast.JoinedStr) and any(isinstance(part, ast.FormattedValue) and not _fixed(part.value) for part in node.values):
        return "".join(str(part.value) if isinstance(part, ast.Constant) else " x " for part in node.values)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod | ast.Add):
        left = node.left
        while isinstance(left, ast.BinOp):
            left = left.left
        if isinstance(left, ast.Constant) and isinstance(left.value, str) and not _constant(node.right) and not _fixed(node.right):
            return left.value
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "format":
        held = node.func.value
        return held.value if isinstance(held, ast.Constant) and isinstance(held.value, str) else None
    return None


def _fixed(node: ast.expr) -> bool:
    """A constant of the program, by the way its name is written."""
    name = node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""
    return len(name) > 1 and name.isupper()


# ---- one rule each


def _eval(call: ast.Call, name: str) -> Told | None:
    if name in ("eval", "exec", "builtins.eval", "builtins.exec") and not _constant(_first(call)):
        return (
            "eval",
            H,
            f"{name.rpartition('.')[2]} runs whatever the text says.",
            "Use ast.literal_eval for data, or a table of functions.",
        )
    return None


def _shell(call: ast.Call, name: str) -> Told | None:
    is_shell = name in ("os.system", "os.popen", "subprocess.getoutput", "subprocess.getstatusoutput", "asyncio.create_subprocess_shell")
    if not is_shell and not ((name in _SUBPROCESS or name.endswith(".Popen")) and _is(_word(call, "shell"), True)):
        return None
    severity = L if _constant(_first(call)) else H
    return (
        "shell",
        severity,
        "A shell reads the command: text from elsewhere becomes commands.",
        "Give a list of arguments, without a shell.",
    )


def _loads(call: ast.Call, name: str) -> Told | None:
    if name in _PICKLES:
        return "pickle", M, f"{name} runs code that the data names.", "Use JSON, or read only what you wrote and signed yourself."
    loader = _word(call, "Loader") or (call.args[1] if len(call.args) > 1 else None)
    is_safe = loader is not None and "Safe" in ast.unparse(loader)
    if name in ("yaml.unsafe_load", "yaml.full_load") or (name in ("yaml.load", "yaml.load_all") and not is_safe):
        return "yaml-load", H, "yaml.load makes any object that the text names.", "Use yaml.safe_load."
    if name == "torch.load" and not _is(_word(call, "weights_only"), True):
        return "pickle", L, "torch.load unpickles.", "Give weights_only=True."
    return None


def _network(call: ast.Call, name: str) -> Told | None:
    if _is(_word(call, "verify"), False) and (
        name.startswith(("requests.", "httpx.")) or name.endswith((".get", ".post", ".request", ".Client", ".AsyncClient"))
    ):
        return "no-verify", H, "Certificates are not checked.", "Give verify= the CA file instead."
    if name in ("ssl._create_unverified_context", "ssl._create_stdlib_context"):
        return "no-verify", H, "Certificates are not checked.", "Use ssl.create_default_context()."
    if name.endswith("AutoAddPolicy"):
        return "no-verify", M, "Any host key is accepted.", "Load known host keys, and refuse others."
    if (
        _HTTP.match(name)
        and name.startswith("requests.")
        and _word(call, "timeout") is None
        and all(keyword.arg for keyword in call.keywords)
    ):
        return "no-timeout", L, "Without a timeout this waits for ever when the server does not answer.", "Give timeout=."
    if name in ("jwt.decode",) and "verify_signature" in ast.unparse(call) and "False" in ast.unparse(call):
        return "no-verify", H, "The signature of the token is not checked.", "Give the key and the algorithms."
    return None


def _files(call: ast.Call, name: str) -> Told | None:
    if name == "tempfile.mktemp":
        return "mktemp", M, "Between name and use somebody can put a file there.", "Use NamedTemporaryFile or mkstemp."
    if name in ("os.chmod", ".chmod") or name.endswith(".chmod"):
        mode = call.args[-1] if call.args else _word(call, "mode")
        if isinstance(mode, ast.Constant) and isinstance(mode.value, int) and mode.value & 0o002:
            return "open-to-all", M, "Everybody may write it.", "Give no more than is needed: 0o755, or 0o600."
    if name.endswith(".extractall") and _word(call, "filter") is None and "zip" not in name.lower():
        return "extractall", M, "A hostile archive writes outside of the folder.", 'Give filter="data" (tarfile).'
    return None


def _hashes(call: ast.Call, name: str) -> Told | None:
    is_new = name == "hashlib.new" and isinstance(_first(call), ast.Constant) and str(_first(call).value).lower() in ("md5", "sha1")  # type: ignore[union-attr]
    if (name in ("hashlib.md5", "hashlib.sha1") or is_new) and not _is(_word(call, "usedforsecurity"), False):
        if re.search(r"(?i)passw|pwd|secret", ast.unparse(call)):
            return "weak-hash", H, "A password under a fast hash is guessed quickly.", "Use hashlib.scrypt, or argon2."
        return "weak-hash", L, "MD5 and SHA-1 can be forged.", "Use sha256; where it is no matter of security, say usedforsecurity=False."
    return None


def _sql(call: ast.Call, name: str) -> Told | None:
    if name.rpartition(".")[2] in ("execute", "executemany", "executescript", "raw", "text", "query", "fetch", "fetchrow", "read_sql"):
        made = _made_of_text(_first(call))
        if made is not None and _SQL.search(made[:2000]):
            return (
                "sql",
                H,
                "SQL is put together from text: whoever writes the value writes the query.",
                "Use placeholders and hand the values over beside it.",
            )
    return None


def _web(call: ast.Call, name: str) -> Told | None:
    if name.endswith("mark_safe") or name in ("markupsafe.Markup", "flask.Markup"):
        return None if _constant(_first(call)) else ("inner-html", M, "HTML is put into the page as it is.", "Let the template escape it.")
    if name.endswith("jinja2.Environment") and (_word(call, "autoescape") is None or _is(_word(call, "autoescape"), False)):
        return "inner-html", L, "These templates escape nothing.", "Give autoescape=select_autoescape() where they make HTML."
    if name.endswith(".run") and _is(_word(call, "debug"), True):
        return "debug-server", M, "The debugger of the server runs code for whoever asks.", "Leave debug off, or read it from the settings."
    return None


_CALL_RULES: tuple[Callable[[ast.Call, str], Told | None], ...] = (_eval, _shell, _loads, _network, _files, _hashes, _sql, _web)


def _swallowed(node: ast.ExceptHandler) -> Told | None:
    is_broad = node.type is None or (isinstance(node.type, ast.Name) and node.type.id in ("Exception", "BaseException"))
    is_silent = all(
        isinstance(one, ast.Pass | ast.Continue) or (isinstance(one, ast.Expr) and isinstance(one.value, ast.Constant)) for one in node.body
    )
    if is_broad and is_silent:
        return "swallowed", M, "Every error is swallowed here, also those nobody thought of.", "Catch what you expect, or log it."
    if node.type is None and not any(isinstance(one, ast.Raise) for one in ast.walk(node)):
        return "swallowed", L, "A bare except also catches KeyboardInterrupt and SystemExit.", "Name what you expect, at least Exception."
    return None


def _weak_random(node: ast.Assign | ast.AnnAssign, names: dict[str, str]) -> Told | None:
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
    if node.value is None or not any(_SECRET_NAME.search(ast.unparse(target)[:200]) for target in targets):
        return None
    if any(isinstance(one, ast.Call) and _dotted(one.func, names).startswith("random.") for one in ast.walk(node.value)):
        return "weak-random", M, "random is no source of secrets: what it gives can be foretold.", "Use the module secrets."
    return None


def _unchecked_tls(node: ast.Assign | ast.AnnAssign, names: dict[str, str]) -> Told | None:
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
    ends = {target.attr for target in targets if isinstance(target, ast.Attribute)}
    off = ("check_hostname" in ends and _is(node.value, False)) or (
        "verify_mode" in ends and node.value is not None and _dotted(node.value, names).endswith("CERT_NONE")
    )
    return ("no-verify", H, "Certificates or host names are not checked.", "Trust the CA by load_verify_locations.") if off else None


def _assert_guards(node: ast.Assert) -> Told | None:
    is_for_types = isinstance(node.test, ast.Compare) and isinstance(node.test.ops[0], ast.IsNot | ast.Is)
    if not is_for_types and _GUARDED.search(ast.unparse(node.test)[:300]):
        return "assert", M, "With python -O this check is gone.", "Raise an error where it is not so."
    return None


def _mutable_default(node: ast.FunctionDef | ast.AsyncFunctionDef) -> Told | None:
    defaults = [*node.args.defaults, *node.args.kw_defaults]
    if any(isinstance(one, ast.List | ast.Dict | ast.Set) for one in defaults):
        return (
            "mutable-default",
            M,
            f"The default of {node.name} is one object, shared by all calls.",
            "Use None, and make a new one inside.",
        )
    return None
