-- Version 5: a tree is small, so its index needs its root only.

DROP INDEX delegations_in_tree;
CREATE INDEX delegations_in_tree ON delegations (root_id) WHERE parent_id IS NOT NULL;
