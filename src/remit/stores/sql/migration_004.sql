-- Version 4: what each principal has spent is counted when it is spent, and compared with its limits there.

INSERT INTO drawn (principal, delegations, tokens, cost, since)
SELECT principal, total(status!='refused'), total(tokens), total(cost), min(created_at) FROM delegations
WHERE principal IS NOT NULL GROUP BY principal
ON CONFLICT (principal) DO UPDATE SET delegations=drawn.delegations+excluded.delegations, tokens=drawn.tokens+excluded.tokens,
cost=drawn.cost+excluded.cost, since=min(drawn.since, excluded.since);

CREATE TABLE principal_limits (
    principal TEXT PRIMARY KEY,
    limits TEXT NOT NULL
) WITHOUT ROWID;

CREATE INDEX delegations_live_by_principal ON delegations (principal) WHERE principal IS NOT NULL AND settled_at IS NULL;
