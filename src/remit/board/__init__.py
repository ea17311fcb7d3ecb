"""The board: the tasks of a project, in `specs/state.json` and `specs/TODO.md`, and the commands that work on them.

`board` reads and changes the files; `implement`, `research_plan`, `review`, `error_tasks` and `meta` delegate to agents through
`app.Remit`, check the returns, file them and commit. The package prints nothing; `cli` does."""
