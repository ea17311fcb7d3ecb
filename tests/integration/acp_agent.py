"""A scripted agent for the Agent Client Protocol: the first argument selects its behaviour."""

import asyncio
import inspect
import json
import os
import re
import sys
import time
from pathlib import Path
from typing import Any

import pydantic

# The library builds hundreds of models at import; this program starts dozens of times and uses few.
pydantic.BaseModel.model_config["defer_build"] = True
inspect.currentframe, currentframe = lambda: None, inspect.currentframe
import acp  # noqa: E402
from acp.exceptions import RequestError  # noqa: E402
from acp.schema import (  # noqa: E402
    AgentCapabilities,
    AuthMethodAgent,
    Implementation,
    InitializeResponse,
    LoadSessionResponse,
    NewSessionResponse,
    PermissionOption,
    PromptResponse,
    ToolCallUpdate,
    UsageUpdate,
)

inspect.currentframe = currentframe

MODE = sys.argv[1] if len(sys.argv) > 1 else "answer"
LOG = Path(os.environ.get("ACP_LOG", os.devnull))


def log(**item: Any) -> None:
    with LOG.open("a") as file:
        file.write(json.dumps(item) + "\n")


def return_for(prompt: str, **more: Any) -> str:
    """A valid return: the example of the format instruction, completed."""
    example = json.loads(re.findall(r"```json\n(.*?)\n```", prompt, re.DOTALL)[-1])
    return json.dumps({**example, "summary": "Did what was asked. Nothing is left to do.", "next_steps": "", **more})


class Scripted(acp.Agent):
    def __init__(self) -> None:
        self.cancelled = asyncio.Event()
        self.prompts: list[str] = []

    def on_connect(self, conn: Any) -> None:
        self.client = conn

    async def initialize(self, protocol_version: int, **rest: Any) -> InitializeResponse:
        log(method="initialize", version=protocol_version, capabilities=rest["client_capabilities"].model_dump(mode="json"))
        ways: list[Any] = []
        if MODE == "needs-auth":
            ways = [AuthMethodAgent(id="browser", name="Log in with the browser", description="run acme login")]
        version = 99 if MODE == "other-version" else 1
        return InitializeResponse(
            protocol_version=version,
            agent_capabilities=AgentCapabilities(load_session=MODE == "resumes"),
            auth_methods=ways,
            agent_info=Implementation(name="OpenCode", version="1") if MODE == "opencode" else None,
        )

    async def new_session(self, cwd: str, mcp_servers: Any = None, **_: Any) -> NewSessionResponse:
        if MODE == "needs-auth":
            raise RequestError.auth_required({"details": "no key"})
        log(method="new", cwd=cwd, servers=[one.model_dump(mode="json") for one in mcp_servers or ()])
        return NewSessionResponse(session_id=f"conversation-{os.getpid()}")

    async def load_session(self, cwd: str, session_id: str, mcp_servers: Any = None, **_: Any) -> LoadSessionResponse:
        log(method="load", session=session_id)
        await self.say(session_id, "words of an earlier run")
        return LoadSessionResponse()

    async def cancel(self, session_id: str, **_: Any) -> None:
        log(method="cancel")
        self.cancelled.set()

    async def say(self, session_id: str, text: str) -> None:
        await self.client.session_update(session_id, acp.update_agent_message_text(text))

    async def prompt(self, prompt: list[Any], session_id: str, **_: Any) -> PromptResponse:
        text = prompt[0].text
        self.prompts.append(text)
        log(method="prompt", text=text, pid=os.getpid())
        reason = await getattr(self, MODE.replace("-", "_"), self.answer)(session_id, text)
        return PromptResponse(stop_reason=reason or "end_turn")

    # ---- the modes

    async def answer(self, session: str, text: str) -> None:
        await self.say(session, return_for(self.prompts[0]))

    async def waits(self, session: str, text: str) -> str | None:
        if len(self.prompts) > 1:
            await self.answer(session, text)
            return None
        await self.cancelled.wait()
        return "cancelled"

    async def tools(self, session: str, text: str) -> None:
        await self.say(session, "Let me look at the file first. ")
        await self.client.session_update(session, acp.update_agent_thought_text('{"status": "a thought"}'))
        await self.client.session_update(session, acp.start_tool_call("1", "Reading a.py", kind="read", status="pending"))
        await self.client.session_update(session, acp.update_tool_call("1", status="completed"))
        await self.answer(session, text)

    async def permission(self, session: str, text: str) -> None:
        outcomes = []
        for number, (kind, title) in enumerate((("read", "Reading a.py"), ("execute", "rm -rf /"), ("execute", "pytest -q"))):
            options = [
                PermissionOption(option_id="always", name="Always", kind="allow_always"),
                PermissionOption(option_id="yes", name="Yes", kind="allow_once"),
                PermissionOption(option_id="no", name="No", kind="reject_once"),
            ]
            call = ToolCallUpdate(tool_call_id=str(number), kind=kind, title=title)
            response = await self.client.request_permission(session_id=session, tool_call=call, options=options)
            outcomes.append(response.outcome.option_id)
        none = await self.client.request_permission(session_id=session, tool_call=ToolCallUpdate(tool_call_id="9"), options=[])
        outcomes.append(none.outcome.outcome)
        await self.say(session, return_for(text, data=outcomes))

    async def refuses(self, session: str, text: str) -> str:
        await self.say(session, "I will not do that.")
        return "refusal"

    async def errs(self, session: str, text: str) -> None:
        raise RequestError(-32603, "Internal error", {"details": "the model is down"})

    async def dies(self, session: str, text: str) -> None:
        sys.stderr.write("the last words of the agent\n")
        sys.stderr.flush()
        os._exit(7)

    async def spends(self, session: str, text: str) -> None:
        await self.client.session_update(session, UsageUpdate(session_update="usage_update", used=700, size=1000))
        await self.cancelled.wait()

    async def endless_line(self, session: str, text: str) -> None:
        os.set_blocking(1, True)
        block = b"x" * (1 << 20)
        for _ in range(50):
            os.write(1, block)
        await asyncio.sleep(600)

    async def floods(self, session: str, text: str) -> None:
        """50 MB of text in small chunks, as fast as the pipe accepts them."""
        os.set_blocking(1, True)
        update = {"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": "flood " * 1000}}
        line = (
            json.dumps({"jsonrpc": "2.0", "method": "session/update", "params": {"sessionId": session, "update": update}}) + "\n"
        ).encode()
        for _ in range(50_000_000 // len(line)):
            view = memoryview(line)
            while view:
                view = view[os.write(1, view) :]
        await self.answer(session, text)


def greet_strangely() -> None:
    """The behaviours that never reach the protocol."""
    if MODE == "garbage":
        while True:
            print("I am a friendly program, and not an agent.", flush=True)
    if MODE == "mute":
        print("loading…", flush=True)
        time.sleep(600)


if __name__ == "__main__":
    print("acme 1.0", flush=True)  # a greeting, as some agents print one
    greet_strangely()
    asyncio.run(acp.run_agent(Scripted()))
