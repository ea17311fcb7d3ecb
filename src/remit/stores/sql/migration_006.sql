-- Version 6: children enter the indexes of agents and trees in batches.

ALTER TABLE delegations ADD COLUMN unindexed INTEGER;

DROP INDEX delegations_by_agent;
DROP INDEX delegations_in_tree;
CREATE INDEX delegations_by_agent ON delegations (agent, status, created_at) WHERE unindexed IS NULL;
CREATE INDEX delegations_in_tree ON delegations (root_id) WHERE parent_id IS NOT NULL AND unindexed IS NULL;

CREATE TABLE index_progress (up_to INTEGER NOT NULL);
INSERT INTO index_progress SELECT coalesce(max(id), 0) FROM delegations;
