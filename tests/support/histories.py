"""Messages between an assistant and a model, and validation of histories by the rules of model providers."""

from collections.abc import Sequence

from remit.core.model_messages import (
    RESTART,
    Answer,
    Choice,
    EndReason,
    Message,
    Question,
    Reply,
    SpendSink,
    ToolCall,
    ToolOffer,
    ToolResult,
    UserMessage,
    repaired,
)

__all__ = [
    "RESTART", "Answer", "Choice", "EndReason", "Message", "Question", "Reply", "SpendSink", "ToolCall", "ToolOffer", "ToolResult",
    "UserMessage", "faults_of", "repaired",
]  # fmt: skip


def faults_of(messages: Sequence[Message]) -> list[str]:
    """Reasons why a provider would refuse the history; empty if it is valid."""
    faults: list[str] = [] if not messages or isinstance(messages[0], UserMessage) else ["it does not begin with the person"]
    owed: list[str] = []
    for number, message in enumerate(messages):
        if isinstance(message, ToolResult):
            if message.call_id not in owed:
                faults.append(f"{number}: a result of no call")
            else:
                owed.remove(message.call_id)
        elif owed:
            faults.append(f"{number}: calls without results: {owed}")
            owed = []
        if isinstance(message, UserMessage | ToolResult) and not message.text.strip():
            faults.append(f"{number}: it is empty")
        if isinstance(message, Reply):
            owed = [call.call_id for call in message.calls]
            if not message.text.strip() and not owed:
                faults.append(f"{number}: an empty reply")
            if len(set(owed)) != len(owed):
                faults.append(f"{number}: two calls of one id")
    return [*faults, f"calls without results: {owed}"] if owed else faults
