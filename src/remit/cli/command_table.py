"""The commands of remit: where each is defined, its group in the help, and its one-line description."""

from typing import NamedTuple


class CommandEntry(NamedTuple):
    """One command in `remit --help`."""

    place: str
    """`module:function` below `remit.cli`; the function takes a `Project` and returns an `Exit`."""
    panel: str
    help: str


CHAT, DELEGATE, BOARD, LOOK, SETUP = "Talk", "Delegate", "Board", "Look", "Set up"
ASKING = (CHAT, DELEGATE, BOARD)
"""Groups whose commands run agents: a person at the terminal is asked to approve the project first."""
COMMANDS = {
    "ask": CommandEntry("ask:ask", CHAT, "Ask the assistant one question."),
    "chat": CommandEntry("ask:chat", CHAT, "Talk with the assistant."),
    "conversations": CommandEntry("ask:conversations", CHAT, "List conversations."),
    "delegate": CommandEntry("delegate:delegate", DELEGATE, "Hand work to an agent and wait for its return."),
    "run": CommandEntry("flows:run", DELEGATE, "Run a flow: several delegations declared in a file."),
    "cancel": CommandEntry("sessions:cancel", DELEGATE, "Stop a delegation and everything below it."),
    "recover": CommandEntry("sessions:recover", DELEGATE, "Resume or settle the work of processes that died."),
    "fetch": CommandEntry("operate:fetch", DELEGATE, "Fetch the files of a delegation that ran on another machine."),
    "workspaces": CommandEntry("workspaces:workspaces", DELEGATE, "List, merge or remove the worktrees of agents."),
    "validate": CommandEntry("sessions:validate", DELEGATE, "Check a return against the return format."),
    "task": CommandEntry("task:task", BOARD, "Record a task; show, abandon, recover, divide, sync or review tasks."),
    "research": CommandEntry("board_commands:research", BOARD, "Research a task; the report goes to its folder."),
    "plan": CommandEntry("board_commands:plan", BOARD, "Plan a task in phases."),
    "revise": CommandEntry("board_commands:revise", BOARD, "Revise the plan of a task."),
    "implement": CommandEntry("board_commands:implement", BOARD, "Implement tasks by their plans."),
    "review": CommandEntry("board_commands:review", BOARD, "Review the work done for tasks."),
    "errors": CommandEntry("board_commands:errors", BOARD, "Diagnose recorded errors and plan the fixes."),
    "meta": CommandEntry("board_commands:meta", BOARD, "Write a new agent file or command file."),
    "board": CommandEntry("board:board", BOARD, "Show the tasks, one task in full, or a picture; import a board."),
    "todo": CommandEntry("task:todo", BOARD, "Archive finished tasks and tidy TODO.md."),
    "status": CommandEntry("sessions:status", LOOK, "Show queued and running delegations."),
    "show": CommandEntry("sessions:show", LOOK, "Show one delegation, or the last: its tree, steps and return."),
    "follow": CommandEntry("sessions:follow", LOOK, "Follow a delegation until its return."),
    "history": CommandEntry("sessions:history", LOOK, "List delegations, newest first."),
    "cache": CommandEntry("metrics:cache", LOOK, "List the results that may be used again, or clear them."),
    "routes": CommandEntry("metrics:routes", LOOK, "List groups of agents, or explain whom one would choose."),
    "limits": CommandEntry("metrics:limits", LOOK, "Show the time limits of agents, and what was learned from their runs."),
    "ledger": CommandEntry("metrics:ledger", LOOK, "List recorded errors."),
    "metrics": CommandEntry("metrics:metrics", LOOK, "Print figures of a period."),
    "audit": CommandEntry("policy:audit", LOOK, "Print the log of policy decisions."),
    "agents": CommandEntry("agents:agents", LOOK, "List agents, show one, write a new one, find installed coding agents."),
    "roles": CommandEntry("agents:roles", LOOK, "Show which agent carries out each role of the board."),
    "commands": CommandEntry("command_files:commands", LOOK, "List the commands that files of the project add."),
    "demo": CommandEntry("demo:demo", SETUP, "Show what remit promises, without a key or a server."),
    "init": CommandEntry("init:init", SETUP, "Find coding agents and models, and write remit.toml."),
    "install": CommandEntry("install:install", SETUP, "Let a coding agent delegate: write remit into its configuration."),
    "doctor": CommandEntry("doctor:doctor", SETUP, "Check this machine and project."),
    "trust": CommandEntry("trust:trust", SETUP, "Approve what files of this project may run, send or weaken."),
    "config": CommandEntry("init:config", SETUP, "Print the settings and where each came from."),
    "models": CommandEntry("models:models", SETUP, "List the language models, or test them."),
    "policy": CommandEntry("policy:policy", SETUP, "Show, check, explain or create the rules of the project."),
    "token": CommandEntry("token:token", SETUP, "Create, list or revoke tokens for callers of the server."),
    "backup": CommandEntry("operate:backup", SETUP, "Write record, settings and board to one file."),
    "restore": CommandEntry("operate:restore", SETUP, "Bring back a backup."),
    "prune": CommandEntry("operate:prune", SETUP, "Forget old finished delegations and free their files."),
    "store": CommandEntry("operate:store", SETUP, "Show where delegations are recorded; move the record to another store."),
    "mcp": CommandEntry("serve:mcp", SETUP, "Serve the delegate tool to a coding agent over stdin and stdout."),
    "serve": CommandEntry("serve:serve", SETUP, "Serve the agents over HTTP, gRPC, A2A and MCP."),
    "worker": CommandEntry("serve:worker", SETUP, "Take work for the agents of this project from Temporal."),
    "workers": CommandEntry("serve:workers", LOOK, "List the processes that take work for this project."),
}
SUBCOMMANDS = {
    "agents new": "agents:new",
    "board import": "board:import_",
    "cache list": "metrics:cache",
    "cache clear": "metrics:clear_cache",
    "conversations list": "ask:conversations",
    "models list": "models:models",
    "models test": "models:try_each",
    "policy show": "policy:policy",
    "policy check": "policy:check",
    "policy explain": "policy:explain",
    "policy init": "policy:init",
    "store copy": "operate:copy",
    "token new": "token:new",
    "token list": "token:token",
    "token revoke": "token:revoke",
}
ALIASES = {"help": "--help", "version": "--version", "list": "agents", "log": "history"}
"""Words that people type for a command or an option; not listed in the help. A command file of the same name takes precedence."""
