"""What `remit serve` says while it runs: where it listens, that it stops, what was left. On stderr, or with --json on stdout."""

from remit.cli.output import say_aside, say_json
from remit.serve.run import Opened, Stopped


class Telling:
    def __init__(self, *, as_json: bool) -> None:
        self._as_json = as_json

    def opened(self, opened: Opened) -> None:
        if self._as_json:
            say_json({"event": "serving", **opened.to_dict()})
            return
        say_aside(f"Serving {opened.root}:")
        for name, address in opened.doors.items():
            say_aside(f"  {name:<8} {address}")
        say_aside(f"Token of this user: {opened.token_file}; for others: remit token new NAME. Ctrl-C stops it.")

    def reloaded(self, problems: list[str]) -> None:
        if self._as_json:
            say_json({"event": "reloaded", "problems": problems})
            return
        say_aside(
            "Policy and certificates were read again. Agents stay as they were at the start."
            + "".join(f"\n  {problem}" for problem in problems)
        )

    def stopping(self, running: int, seconds: float) -> None:
        if self._as_json:
            say_json({"event": "stopping", "running": running, "seconds": seconds})
            return
        waits = f"{running} still running, at most {seconds:g} s; once more stops at once" if running else "nothing is running"
        say_aside(f"Stopping: nothing new is taken; {waits}.")

    def stopped(self, stopped: Stopped) -> None:
        if self._as_json:
            say_json({"event": "stopped", **stopped.to_dict()})
            return
        parts = [f"{count} {what}" for count, what in ((stopped.handed_over, "handed over"), (stopped.ended, "stopped")) if count]
        say_aside("Stopped." + (f" Of what was running, {' and '.join(parts)}." if parts else ""))
