"""What an error's code usually means, and what to do about it: one row for each. Read by `diagnosing`; adding a code is adding a row."""

from collections.abc import Mapping

CAUSES: Mapping[str, tuple[str, str]] = {
    "TIMEOUT": (
        "The work takes longer than it is given, or it waits for something that never comes.",
        "Look at what it did last (`remit show SESSION`); give it more time in [timeouts], or less to do at once.",
    ),
    "VALIDATION_FAILED": (
        "The agent does not hand back a return in the agreed shape, or names files that are not there.",
        "Read what it said (`remit show SESSION`); tell it the format in its instructions, or use a model that follows it.",
    ),
    "TOOL_UNAVAILABLE": (
        "A program or a package that the work needs is not installed here, or nobody is bound to a role.",
        "Follow the recommendation of the error; `remit doctor` lists what is missing on this machine.",
    ),
    "BUILD_ERROR": ("The project does not build after the change.", "Build it by hand, read the first error, and mend that one first."),
    "FILE_NOT_FOUND": (
        "A file is named that is not there: moved, misspelt, or not written by whoever should have.",
        "Look for it by its name; mend the path where it is written down.",
    ),
    "CYCLE_DETECTED": (
        "Agents hand work back to one another.",
        "Have the agent that was named twice do that part itself, or give it to another one.",
    ),
    "MAX_DEPTH_EXCEEDED": (
        "Agents delegate further down than is allowed.",
        "Delegate from higher up; max_depth in remit.toml raises the limit.",
    ),
    "STATUS_SYNC_FAILED": ("The board's files could not be brought to say the same.", "Run `remit task --sync`, and read what it reports."),
    "GIT_COMMIT_FAILED": (
        "A hook refuses the commit, git does not know who commits, or its index is in somebody's hands.",
        "Commit by hand once and read what git says; the files themselves are written.",
    ),
    "CANCELLED": ("Somebody stopped it.", "Nothing, unless nobody meant to."),
    "BUDGET_EXCEEDED": ("The tree used up what it was given.", "Raise [budget] in remit.toml, or give it less to do."),
    "POLICY_DENIED": (
        "A rule of the policy forbids what was tried.",
        "`remit policy explain SESSION` names the rule; change it, or have the work done without.",
    ),
    "AGENT_UNAVAILABLE": (
        "The agent could not be reached or started.",
        "Start its command by hand once; `remit agents NAME` shows how it is declared.",
    ),
    "AGENT_CRASHED": (
        "The agent's process ended, or its function raised, before it handed anything back.",
        "Read the stack trace below and the end of what it printed (`remit show SESSION`).",
    ),
    "QUEUE_FULL": ("More was asked for at once than may wait.", "Ask for less at a time, or raise queue_limit."),
    "INVALID_TARGET": ("An agent is asked for that does not exist.", "`remit agents` lists those there are; mend the name."),
    "INVALID_PARAMETERS": ("An agent is asked for in a way that it does not understand.", "`remit agents NAME` shows what it takes."),
    "INVALID_STATUS_TRANSITION": ("A task is moved to a status it cannot take from where it is.", "`remit board` shows where it is."),
    "STORE_UNAVAILABLE": (
        "The record of the project cannot be written: a full disk, missing rights, another kind of file.",
        "`remit doctor` says which it is.",
    ),
    "NOT_FOUND": ("What was looked for is not in the sources.", "Ask in the words of the sources, or name other sources."),
}
UNKNOWN = (
    "Its code says nothing about the cause.",
    "Read the message and the stack trace, and try to make it happen again with as little as possible.",
)


def cause_of(code: str) -> tuple[str, str]:
    return CAUSES.get(code, UNKNOWN)
