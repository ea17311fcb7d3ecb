-- The record in PostgreSQL: the same columns as in SQLite, in a schema of its own. Later versions are postgres_002.sql and so on.

CREATE TABLE delegations (
    id BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY, -- the order in which they were recorded
    session_id TEXT NOT NULL UNIQUE,
    root_id TEXT NOT NULL,
    parent_id TEXT,
    agent TEXT NOT NULL,
    status TEXT NOT NULL,
    owner TEXT NOT NULL,
    created_at DOUBLE PRECISION NOT NULL,
    started_at DOUBLE PRECISION,
    settled_at DOUBLE PRECISION,          -- NULL exactly while it is queued or running
    key TEXT,
    task_number BIGINT,
    attempt BIGINT NOT NULL,
    tokens BIGINT NOT NULL,
    cost DOUBLE PRECISION NOT NULL,
    chunk_count BIGINT NOT NULL,
    step_times BYTEA NOT NULL,            -- little-endian doubles, NaN for a step that was not reached
    context TEXT NOT NULL,                -- JSON: what is never searched for
    result TEXT,                          -- JSON: the return
    principal TEXT,
    conversation TEXT,
    queue TEXT,
    ticket BIGINT NOT NULL DEFAULT 0
);

CREATE INDEX delegations_by_time ON delegations (created_at, id);
CREATE INDEX delegations_by_agent ON delegations (agent, status, created_at);
CREATE INDEX delegations_live ON delegations (id) WHERE settled_at IS NULL;
CREATE INDEX delegations_in_tree ON delegations (root_id, parent_id) WHERE parent_id IS NOT NULL;
CREATE INDEX delegations_by_task ON delegations (task_number, created_at) WHERE task_number IS NOT NULL;
CREATE UNIQUE INDEX delegations_by_key ON delegations (key) WHERE key IS NOT NULL;
CREATE INDEX delegations_by_principal ON delegations (principal, created_at) WHERE principal IS NOT NULL;
CREATE INDEX delegations_by_conversation ON delegations (conversation, created_at) WHERE conversation IS NOT NULL;

-- Spending of delegations that the history has forgotten.
CREATE TABLE drawn (
    principal TEXT PRIMARY KEY,
    delegations BIGINT NOT NULL,
    tokens BIGINT NOT NULL,
    cost DOUBLE PRECISION NOT NULL,
    since DOUBLE PRECISION NOT NULL
);

CREATE TABLE events (
    session_id TEXT NOT NULL,
    number BIGINT NOT NULL,
    at DOUBLE PRECISION NOT NULL,
    kind TEXT NOT NULL,
    body TEXT NOT NULL,
    PRIMARY KEY (session_id, number)
);

CREATE TABLE checkpoints (
    session_id TEXT PRIMARY KEY,
    at DOUBLE PRECISION NOT NULL,
    value TEXT NOT NULL
);

CREATE TABLE owners (
    owner_id TEXT PRIMARY KEY,
    pid BIGINT NOT NULL,
    pid_started TEXT NOT NULL,
    pid_space TEXT NOT NULL,
    host TEXT NOT NULL,
    opened_at DOUBLE PRECISION NOT NULL
);

CREATE TABLE cancel_requests (
    id BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    session_id TEXT NOT NULL,
    reason TEXT NOT NULL,
    source TEXT NOT NULL,
    at DOUBLE PRECISION NOT NULL
);

-- One row for each process that writes, updated with each of its writes: others see by the sum that something is new.
CREATE TABLE writers (
    writer TEXT PRIMARY KEY,
    writes BIGINT NOT NULL
);
