-- What each principal has spent is counted when it is spent, and compared with its limits there.

INSERT INTO drawn AS kept (principal, delegations, tokens, cost, since)
SELECT principal, count(*) FILTER (WHERE status!='refused'), 0, sum(cost), min(created_at) FROM delegations
WHERE principal IS NOT NULL GROUP BY principal
ON CONFLICT (principal) DO UPDATE SET delegations=kept.delegations+excluded.delegations, cost=kept.cost+excluded.cost,
since=least(kept.since, excluded.since);

ALTER TABLE drawn ALTER COLUMN tokens TYPE DOUBLE PRECISION; -- a sum may pass 64 bits
UPDATE drawn SET tokens=tokens+coalesce((SELECT sum(tokens) FROM delegations d WHERE d.principal=drawn.principal), 0);

CREATE TABLE principal_limits (
    principal TEXT PRIMARY KEY,
    limits TEXT NOT NULL
);

ALTER TABLE delegations ALTER COLUMN key TYPE TEXT COLLATE "C"; -- prefixes are ranges
