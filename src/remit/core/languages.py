"""The languages that code can be run in, by all their names: one for a rule of the policy, whichever of them somebody wrote."""

NAMES = {
    "python": "python",
    "python3": "python",
    "py": "python",
    "javascript": "javascript",
    "js": "javascript",
    "node": "javascript",
    "shell": "shell",
    "bash": "shell",
    "sh": "shell",
}


def plain_name(name: str) -> str:
    """The first of its names; that of a language nobody knows, in small letters."""
    small = name.strip().lower()
    return NAMES.get(small, small)
