"""The tutorial's first agents: count the words of a folder, one child per file."""

from remit import Context, agent, call


@agent("words.count", timeout=10)
async def count(ctx: Context, path: str) -> int:
    """How many words a file has."""
    return len((ctx.root / path).read_text(errors="replace").split())


@agent("words.folder", timeout=60)
async def folder(ctx: Context, pattern: str = "*.txt") -> str:
    """Count every file that matches, several at once, and write a report."""
    paths = sorted(path.relative_to(ctx.root).as_posix() for path in ctx.root.glob(pattern))
    returns = await ctx.gather(*(call("words.count", path=path) for path in paths), limit=8)
    lines = [f"- {path}: {done.data if done.ok else done.summary}" for path, done in zip(paths, returns, strict=True)]
    (ctx.root / "words.md").write_text("# Words\n\n" + "\n".join(lines) + "\n")
    ctx.artifact("words.md", summary="Words per file.")
    return f"Counted {len(paths)} files. They hold {sum(done.data for done in returns if done.ok)} words in all."
