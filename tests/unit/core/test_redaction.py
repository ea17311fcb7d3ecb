"""A secret anywhere in the parameters reaches the agent and is stored nowhere."""

import asyncio
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from remit import Context, Failed, Remit, Return, agent
from remit.core.redaction import SECRETS_REMOVED, redact_parameters, redact_text, register_secrets
from remit.stores.rows import from_json_text, to_json_text

LETTERS = "abcdefghijkmnopqrstuvwxyzABCDEFGHJKLMNPQRSTUVWXYZ23456789"
words = st.text(LETTERS, min_size=24, max_size=40).filter(lambda word: any(c.isdigit() for c in word))
named = st.sampled_from(
    ["password", "Authorization", "cookie", "X-Api-Key", "api_key", "token", "secret", "clientSecret", "DB_PASSWORD", "private-key"]
)
formats = st.sampled_from(
    [
        "sk-{}", "sk-ant-{}", "ghp_{}", "github_pat_{}", "glpat-{}", "npm_aaaaaaaaaa{}", "Bearer {}", "eyJhbGciOi.eyJzdWIiOi.{}",
        "xoxb-{}", "AIzaaaaaaaaaaa{}", "https://someone:{}@db.example/x",
        "https://a.example/x?q=1&access_token={}&n=2", "/back?q=1#id_token={}", "http://a.example/?sig={}",
        "-----BEGIN PRIVATE KEY-----\n{}\n-----END PRIVATE KEY-----",
    ]
)  # fmt: skip
wrappers = st.sampled_from(["plain", "in a mapping", "in a list", "in headers", "with quotes"])


@st.composite
def parameters_with_secret(draw: st.DrawFn) -> tuple[dict[str, Any], str]:
    """Parameters, and the secret among them."""
    secret = draw(words)
    value: Any
    if draw(st.booleans()):
        value = draw(formats).format(secret)
        inner: dict[str, Any] = {draw(st.sampled_from(["note", "url", "text"])): f"before {value} after"}
    else:
        wrapper = draw(wrappers)
        name = draw(named)
        value = f'{secret}"\\\n' if wrapper == "with quotes" else secret
        inner = {name: value}
        if wrapper == "in a mapping":
            inner = {name: {"inner": value}}
        elif wrapper == "in a list":
            inner = {name: [value, "x"]}
        elif wrapper == "in headers":
            inner = {"headers": {name: value, "accept": "*/*"}}
    for _ in range(draw(st.integers(0, 3))):
        inner = {draw(st.sampled_from(["a", "options", "more"])): draw(st.sampled_from([inner, [inner]]))}
    return inner, secret


seen: list[Any] = []


@agent
async def talkative(ctx: Context, given: dict[str, Any], how: str) -> Any:
    """Repeats its input through every output."""
    seen.append(given)
    text = str(_leaf(given))
    ctx.progress(f"I was given {text}")
    ctx.emit({"chunk": text})
    await ctx.checkpoint({"kept": text})
    if how == "raise":
        raise RuntimeError(f"cannot do {text}")
    if how == "fail":
        raise Failed(f"it broke over {text}", advice=f"Look at {text}.")
    child = await ctx.delegate("echo", text=f"again {text}") if how == "delegate" else None
    return {"answer": text, "child": None if child is None else child.data}


@agent
async def echo(ctx: Context, text: str) -> str:
    return text


def _leaf(value: Any) -> Any:
    """The secret text at any depth."""
    while not isinstance(value, str):
        value = next(iter(value.values())) if isinstance(value, dict) else value[0]
    return value


@given(parameters_with_secret(), st.sampled_from(["return", "raise", "fail", "delegate"]))
def test_secret_reaches_the_agent_and_is_stored_nowhere(case: tuple[dict[str, Any], str], how: str) -> None:
    parameters, secret = case
    seen.clear()

    async def run(folder: str) -> tuple[Return, Return | None]:
        async with Remit.open(folder, agents=[talkative, echo]) as remit:
            live = await remit.delegate("talkative", given=parameters, how=how)
            return live, await remit.result(live.session_id)

    with TemporaryDirectory() as folder:
        live, kept = asyncio.run(run(folder))
        assert seen == [parameters]
        for path in Path(folder, ".remit").rglob("*"):
            if path.is_file() and not path.is_fifo():
                assert secret.encode() not in path.read_bytes(), path
    if how in ("return", "delegate"):
        assert secret in str(live.data)  # the waiting caller gets it
        assert SECRETS_REMOVED in kept.warnings
        assert SECRETS_REMOVED not in live.warnings


PIECES = st.sampled_from([*'"\\\n,:', "1234567", "summary", "seconds", "true,", "-----BEGIN PRIVATE KEY-----", "Authorization", "Bearer ",
                         "://a:b@", "x" * 20])  # fmt: skip
texts = st.lists(PIECES, max_size=6).map("".join)
values = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**9), 10**9) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=8,
)


@settings(max_examples=100)
@given(values, texts, st.sampled_from(["password", "Authorization"]))
def test_record_stays_valid_json_for_any_secret(value: Any, secret: str, name: str) -> None:
    """Including secrets that look like JSON or like field names."""
    held = register_secrets({name: secret})
    text = to_json_text({"summary": f"it was {secret}", "seconds": 1234567.25, "data": value})
    read = from_json_text(text)
    assert set(read) == {"summary", "seconds", "data"}
    assert read["seconds"] == 1234567.25
    if held is not None:
        assert secret not in read["summary"] or secret in "it was [redacted]"
    del held


@given(st.text(max_size=200))
def test_text_without_secrets_is_unchanged(text: str) -> None:
    if not any(sign in text for sign in ("://", "sk-", "eyJ", "earer", "uthorization", "PRIVATE")):
        assert redact_text(text) == text


@given(
    st.recursive(st.none() | st.booleans() | st.integers() | st.text(max_size=5), lambda inner: st.lists(inner, max_size=3), max_leaves=5)
)
def test_harmless_names_keep_their_values(value: Any) -> None:
    for name in ("path", "max_tokens", "author", "tokens", "query", "key", "monkey"):
        assert redact_parameters({name: value}) == {name: value}
