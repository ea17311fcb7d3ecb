"""What a language-model agent is told about the form of its answer (S3.8): the instruction that ends every prompt, and the repair.

Text only; that its example obeys the contract is proved by its tests. Used by agents that prompt a model or a command.
"""

import json
from collections.abc import Sequence

from remit.core.result import ARTIFACT_TYPES, Status

EXAMPLE_SUMMARY = "Read the three modules named in the task. Wrote down what each of them does and where they overlap."
"""Of the example. `validate` refuses it from an agent at work: it is an echo of the prompt, not an answer."""
_MOST_FAULTS = 20

_RULES = """\
## How to answer

End your answer with exactly one JSON object in a fenced block, as below. Nothing may follow it.
Take these over as they stand: session_id {session_id}, agent_type {agent}, delegation_depth {depth}, delegation_path {path}.

- status: one of {statuses}; lower case.
- summary: 2 to 5 plain sentences, at most 400 characters, no markup and no emoji. It says what was done, not what will be.
- artifacts: one entry for each file you wrote: type (one of {types}),
  path (relative to the project root, inside it), summary.
  With status completed every file must exist and hold something. No files: an empty list.
- errors: empty when completed. With any other status at least one, with type, message, code, recoverable (true or false)
  and recommendation.
- next_steps: what should be done next, or an empty string.
- data: optional; the structured result, any JSON.

Work that is not finished is partial, never completed: say in errors what is missing. Files are looked at before you are believed.

```json
{example}
```
"""


def format_instruction(session_id: str, agent: str, depth: int, path: Sequence[str]) -> str:
    """The end of a prompt: the form of the answer, with the session id to echo."""
    return _RULES.format(
        session_id=session_id,
        agent=agent,
        depth=depth,
        path=json.dumps(list(path), ensure_ascii=False),
        statuses=", ".join(Status),
        types=", ".join(ARTIFACT_TYPES),
        example=json.dumps(_example(session_id, agent, depth, path), indent=2, ensure_ascii=False),
    )


def repair_instruction(faults: Sequence[str]) -> str:
    """What the agent is asked when its answer broke the contract; it is asked once (S3.7)."""
    listed = "\n".join(f"- {fault}" for fault in faults[:_MOST_FAULTS])
    more = f"\n- and {len(faults) - _MOST_FAULTS} more" if len(faults) > _MOST_FAULTS else ""
    return (
        f"Your answer could not be accepted:\n{listed}{more}\n\n"
        "Do not do the work again. Correct these faults and hand in the whole JSON object once more, in the form you were given, "
        "with nothing after it. This is the only repair: a second faulty answer fails the delegation.\n"
    )


def _example(session_id: str, agent: str, depth: int, path: Sequence[str]) -> dict[str, object]:
    return {
        "status": "completed",
        "summary": EXAMPLE_SUMMARY,
        "artifacts": [],
        "metadata": {
            "session_id": session_id,
            "agent_type": agent,
            "delegation_depth": depth,
            "delegation_path": list(path),
        },
        "errors": [],
        "next_steps": "Decide which of the two overlapping modules is kept.",
    }
