-- Version 1: the first schema.

CREATE TABLE delegations (
    id INTEGER PRIMARY KEY,               -- the order in which they were recorded: rows are only ever appended
    session_id TEXT NOT NULL UNIQUE,
    root_id TEXT NOT NULL,
    parent_id TEXT,
    agent TEXT NOT NULL,
    status TEXT NOT NULL,
    owner TEXT NOT NULL,
    created_at REAL NOT NULL,
    started_at REAL,
    settled_at REAL,                      -- NULL exactly while it is queued or running
    key TEXT,
    task_number INTEGER,
    attempt INTEGER NOT NULL,
    tokens INTEGER NOT NULL,
    cost REAL NOT NULL,
    chunk_count INTEGER NOT NULL,
    step_times BLOB NOT NULL,             -- little-endian doubles, NaN for a step that was not reached
    context TEXT NOT NULL,                -- JSON: what is never searched for
    result TEXT                           -- JSON: the return
);

-- The one index every delegation pays for besides its id: each page that a commit touches costs as much as the row itself.
-- Agents and states are few, so a question that names neither asks each pair of them that occurs (see searching.py).
CREATE INDEX delegations_by_agent ON delegations (agent, status, created_at);
-- These cost nothing to a delegation that has no caller, task or key.
CREATE INDEX delegations_in_tree ON delegations (root_id, parent_id) WHERE parent_id IS NOT NULL;
CREATE INDEX delegations_by_task ON delegations (task_number, created_at) WHERE task_number IS NOT NULL;
CREATE UNIQUE INDEX delegations_by_key ON delegations (key) WHERE key IS NOT NULL;

CREATE TABLE events (
    session_id TEXT NOT NULL,
    number INTEGER NOT NULL,
    at REAL NOT NULL,
    kind TEXT NOT NULL,
    body TEXT NOT NULL,
    PRIMARY KEY (session_id, number)
) WITHOUT ROWID;

CREATE TABLE checkpoints (
    session_id TEXT PRIMARY KEY,
    at REAL NOT NULL,
    value TEXT NOT NULL
) WITHOUT ROWID;

CREATE TABLE owners (
    owner_id TEXT PRIMARY KEY,
    pid INTEGER NOT NULL,
    pid_started TEXT NOT NULL,
    pid_space TEXT NOT NULL,
    host TEXT NOT NULL,
    opened_at REAL NOT NULL
) WITHOUT ROWID;

CREATE TABLE cancel_requests (
    id INTEGER PRIMARY KEY,
    session_id TEXT NOT NULL,
    reason TEXT NOT NULL,
    source TEXT NOT NULL,
    at REAL NOT NULL
);
