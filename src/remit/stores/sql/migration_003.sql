-- Version 3: delegations that any worker of a task queue may carry out.

ALTER TABLE delegations ADD COLUMN queue TEXT;
ALTER TABLE delegations ADD COLUMN ticket INTEGER NOT NULL DEFAULT 0;
