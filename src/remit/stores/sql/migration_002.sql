-- Version 2: who asked from outside, and what each of them has drawn.

ALTER TABLE delegations ADD COLUMN principal TEXT;
ALTER TABLE delegations ADD COLUMN conversation TEXT;

CREATE INDEX delegations_by_principal ON delegations (principal, created_at) WHERE principal IS NOT NULL;
CREATE INDEX delegations_by_conversation ON delegations (conversation, created_at) WHERE conversation IS NOT NULL;

CREATE TABLE drawn (
    principal TEXT PRIMARY KEY,
    delegations INTEGER NOT NULL,
    tokens INTEGER NOT NULL,
    cost REAL NOT NULL,
    since REAL NOT NULL
) WITHOUT ROWID;
