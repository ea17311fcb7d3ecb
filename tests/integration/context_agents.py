"""One agent per way to execute a function; each uses every operation of a context. Imported by workers."""

from typing import Any

from remit import BlockingContext, Context, RemitError, agent, call


async def everything(ctx: Context, word: str) -> dict[str, Any]:
    ctx.progress("begun", 0.5)
    ctx.emit({"word": word})
    ctx.spend(tokens=3)
    ctx.warn("Look at this.")
    await ctx.checkpoint([word])
    (ctx.scratch / "made.txt").write_text(word)
    ctx.artifact(ctx.scratch / "made.txt", "data", "a file")
    await ctx.permit(path="made.txt")
    one = await ctx.delegate("echo", word="a", timeout=5)
    two = await ctx.gather(call("echo", word="b"), call("nobody"), limit=1)
    handle = await ctx.start("echo", word="c")
    streamed = [event.kind async for event in handle.stream()]
    try:
        await ctx.session_diff("sess_1700000000_aaaaaa")
    except RemitError as error:
        refused = [type(error).__name__, error.code]
    return facts(ctx) | {
        "data": [one.data, *[r.data for r in two], (await handle.result()).data],
        "kinds": [str(kind) for kind in streamed],
        "refused": refused,
        "permitted": await ctx.permitted(["made.txt"]),
    }


def everything_blocking(ctx: BlockingContext, word: str) -> dict[str, Any]:
    ctx.progress("begun", 0.5)
    ctx.emit({"word": word})
    ctx.spend(tokens=3)
    ctx.warn("Look at this.")
    ctx.checkpoint([word])
    (ctx.scratch / "made.txt").write_text(word)
    ctx.artifact(ctx.scratch / "made.txt", "data", "a file")
    ctx.permit(path="made.txt")
    one = ctx.delegate("echo", word="a", timeout=5)
    two = ctx.gather(call("echo", word="b"), call("nobody"), limit=1)
    handle = ctx.start("echo", word="c")
    streamed = [event.kind for event in handle.stream()]
    try:
        ctx.session_diff("sess_1700000000_aaaaaa")
    except RemitError as error:
        refused = [type(error).__name__, error.code]
    return facts(ctx) | {
        "data": [one.data, *[r.data for r in two], handle.result().data],
        "kinds": [str(kind) for kind in streamed],
        "refused": refused,
        "permitted": ctx.permitted(["made.txt"]),
    }


def facts(ctx: Context | BlockingContext) -> dict[str, Any]:
    assert ctx.task is not None
    return {
        "session_id": ctx.session_id,
        "parameters": dict(ctx.parameters),
        "left": ctx.remaining > 1,
        "hand_in": ctx.hand_in,
        "saved": ctx.saved,
        "task": [ctx.task.title, dict(ctx.task.extra)],
        "tokens": ctx.budget.tokens,
        "environment": ctx.environment()["REMIT_SESSION"],
        "path": ctx.as_dict()["delegation_path"],
    }


inline = agent("inline", timeout=30)(everything)
thread = agent("thread", timeout=30)(everything_blocking)
process = agent("process", timeout=30, isolation="process")(everything)
process_blocking = agent("process-blocking", timeout=30, isolation="process")(everything_blocking)


@agent("echo")
async def echo(word: str) -> str:
    return word
