"""The assistant: a language model whose only tool is `delegate`, and its conversations.

An agent of the directory like any other: each message to it is a delegation, recorded, timed and cancellable like every delegation."""

from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING

from remit.core.agents import ASSISTANT, RESULTS

if TYPE_CHECKING:
    from remit.agents.directory import Directory
    from remit.builtin.assistant.agent import Assistant, AssistantHost
    from remit.core.settings import Settings
    from remit.models.client import Models


def offer_assistant(directory: "Directory", settings: "Settings", models: "Callable[[], Models]", host: "AssistantHost | None") -> None:
    """Offer it unless the settings omit it; nothing is loaded. Without a `host` it can be listed, not called."""

    @cache
    def assistant() -> "Assistant":
        from remit.builtin.assistant.agent import Assistant

        return Assistant(settings, models(), host)

    if ASSISTANT in settings.builtin_agents:
        directory.offer(ASSISTANT, lambda: assistant().agents())
        directory.offer(RESULTS, lambda: assistant().readers())
