-- The registry and history of delegations, as a fresh database gets it. A database made by an older remit reaches the same
-- schema by the numbered migrations beside this file; a test compares the two.

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
    result TEXT,                          -- JSON: the return
    principal TEXT,                       -- who asked from outside, for the whole tree
    conversation TEXT,                    -- what whoever asked calls the conversation that it belongs to
    queue TEXT,                           -- the task queue it was given to; NULL: its owner runs it
    ticket INTEGER NOT NULL DEFAULT 0,    -- of the newest claim by a worker
    unindexed INTEGER                     -- 1 for a new child, until it is entered in the two indexes below
);

-- The one index a root pays for besides its id: each page that a commit touches costs as much as the row itself.
-- Agents and states are few, so a question that names neither asks each pair of them that occurs (see sqlite.py).
-- Children enter this index and the next in batches, off the hot path. Until then they are found by their number: it is above `up_to`.
CREATE INDEX delegations_by_agent ON delegations (agent, status, created_at) WHERE unindexed IS NULL;
CREATE INDEX delegations_in_tree ON delegations (root_id) WHERE parent_id IS NOT NULL AND unindexed IS NULL;
CREATE TABLE index_progress (up_to INTEGER NOT NULL);
INSERT INTO index_progress VALUES (0);
-- These cost nothing to a delegation that has no task, key or principal.
CREATE INDEX delegations_by_task ON delegations (task_number, created_at) WHERE task_number IS NOT NULL;
CREATE UNIQUE INDEX delegations_by_key ON delegations (key) WHERE key IS NOT NULL;
CREATE INDEX delegations_by_principal ON delegations (principal, created_at) WHERE principal IS NOT NULL;
CREATE INDEX delegations_by_conversation ON delegations (conversation, created_at) WHERE conversation IS NOT NULL;

CREATE INDEX delegations_live_by_principal ON delegations (principal) WHERE principal IS NOT NULL AND settled_at IS NULL;

-- What each principal has spent, counted when a delegation or its outcome is recorded. Pruned history refills no budget.
CREATE TABLE drawn (
    principal TEXT PRIMARY KEY,
    delegations INTEGER NOT NULL,
    tokens INTEGER NOT NULL,
    cost REAL NOT NULL,
    since REAL NOT NULL                   -- when it asked first
) WITHOUT ROWID;

CREATE TABLE principal_limits (
    principal TEXT PRIMARY KEY,
    limits TEXT NOT NULL                  -- JSON
) WITHOUT ROWID;

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
