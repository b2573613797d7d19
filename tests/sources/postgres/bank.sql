\set one random(1, 60)
\set other random(1, 60)
\set a least(:one, :other)
\set b greatest(:one, :other)
\set n random(1, 9)
\set kind random(1, 10)
BEGIN;
UPDATE account SET balance = balance - :n WHERE id = :a;
\if :kind > 7
SAVEPOINT one;
INSERT INTO note (account, text) VALUES (:a, repeat('x', :n));
ROLLBACK TO one;
\endif
\if :kind < 4
INSERT INTO note (account, text) VALUES (:b, 'from ' || :a);
\elif :kind = 4
DELETE FROM note WHERE id IN (SELECT id FROM note ORDER BY id LIMIT 12 FOR UPDATE SKIP LOCKED);
\endif
UPDATE account SET balance = balance + :n WHERE id = :b;
\if :kind = 9
ROLLBACK;
\else
COMMIT;
\endif
