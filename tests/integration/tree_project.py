"""A project whose agents delegate from processes of their own, in every possible way: for tests of one tree across processes."""

import os
import sys
from pathlib import Path

from remit.core.ids import CallerToken, decode

AGENTS = '''
import asyncio, json, os, subprocess, sys, time
from pathlib import Path
from remit import BlockingContext, Context, Remit, RemitError, agent, run

def brief(result):
    codes = [error["code"] for error in result["errors"]]
    said = " ".join(error["message"] for error in result["errors"])
    return {"status": result["status"], "codes": codes, "said": said, "data": result["data"]}

def command_line(*arguments, **more):
    return subprocess.run([sys.executable, "-m", "remit", *arguments], capture_output=True, text=True, cwd="/", **more)

def by_command_line(name, parameters, options):
    words = [f"{key}={json.dumps(value)}" for key, value in parameters.items()]
    words += [word for key, value in options.items() for word in (f"--{key}", str(value))]
    done = command_line("delegate", name, *words, "--json")
    result = json.loads(done.stdout)
    return brief(result) if "status" in result else {"status": "error", "codes": [result["error"]["code"]], "said": done.stdout}

def by_library(name, parameters, options):
    return brief(run(name, root="/", parameters=parameters, **options).to_dict())

def hand_on(ctx, way, names, options):
    """Delegate to the first of `names`, which goes on with the rest."""
    name, *rest = names
    parameters = {"word": "hello"} if name in ("echo", "lasts") else {"way": way, "names": rest, "options": options}
    if way == "context":
        return brief(ctx.delegate(name, parameters=parameters, **options).to_dict())
    return (by_command_line if way == "command line" else by_library)(name, parameters, options)

def step(name):
    def carry_out(ctx: BlockingContext, way: str, names: list = [], options: dict = {}) -> object:
        if name == "four":
            ctx.spend(tokens=60)
        return hand_on(ctx, way, names, options) if names else "the last one"
    carry_out.__qualname__ = carry_out.__name__ = name
    return carry_out

one = agent("one", isolation="process", timeout=60)(step("one"))
two = agent("two", isolation="process", timeout=60)(step("two"))
three = agent("three", isolation="process", timeout=60)(step("three"))
four = agent("four", isolation="process", timeout=60)(step("four"))

@agent("echo")
async def echo(ctx: Context, word: str) -> str:
    return word

@agent("lasts")
async def lasts(ctx: Context, word: str, seconds: float = 50.0) -> str:
    ctx.progress("begun")
    await asyncio.sleep(seconds)
    return word

@agent("threaded", isolation="thread")
def threaded(names: list) -> list:
    """By `run`, on a loop of its own in our process."""
    return [brief(run(name, root="/", parameters={"word": name}).to_dict()) for name in names]

@agent("inline")
async def inline(names: list) -> list:
    async with Remit.open("/") as remit:
        return [brief((await remit.delegate(name, parameters={"word": name})).to_dict()) for name in names]

@agent("runs", isolation="process", timeout=60)
def runs(ctx: BlockingContext, commands: list, folder: str = "/") -> list:
    """The command line, from another folder."""
    found = []
    for words in commands:
        done = subprocess.run([sys.executable, "-m", "remit", *words], capture_output=True, text=True, cwd=folder)
        found.append([done.returncode, done.stdout, done.stderr])
    return found

@agent("tells", isolation="process")
def tells(ctx: BlockingContext, seconds: float = 0.0, file: str = "") -> object:
    """Prints, streams, raises its voice and hands back its whole environment."""
    print(dict(os.environ))
    ctx.emit(dict(os.environ))
    ctx.progress(os.environ["REMIT_CALLER"])
    ctx.checkpoint({"env": dict(os.environ)})
    if file:
        Path(file).write_text(os.environ["REMIT_CALLER"])
    time.sleep(seconds)
    ctx.delegate("echo", word=os.environ["REMIT_CALLER"])
    return dict(os.environ)
'''


def make_project(folder: Path) -> Path:
    (folder / ".remit" / "agents").mkdir(parents=True)
    (folder / ".remit" / "agents" / "tree.py").write_text(AGENTS)
    return folder


def secret_in(path: Path) -> CallerToken:
    return decode(path.read_text())


def clean_environment(**more: str) -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith("REMIT_")} | more


PYTHON = sys.executable
