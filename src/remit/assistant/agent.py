"""The assistant as an agent of the directory."""

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from remit.agents.function import FunctionAgent
from remit.core.agents import ASSISTANT
from remit.models.asking import Models
from remit.settings import Settings
from remit.tool.office import Office

if TYPE_CHECKING:
    from remit.agents.directory import Directory


def offer_assistant(directory: "Directory", settings: Settings, models: Models, office: Office | None) -> None:
    """Unless the settings leave it out; nothing is loaded by it. Without an `office` it can be listed, not asked."""
    if ASSISTANT in settings.builtin_agents:
        directory.offer(ASSISTANT, _loader(settings, models, office))


def _loader(settings: Settings, models: Models, office: Office | None) -> Callable[[], Iterable[FunctionAgent]]:
    def load() -> Iterable[FunctionAgent]:
        return []

    return load
