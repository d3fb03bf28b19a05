-- Fencing for PostgreSQL 11 and later: high-water marks, and functions that check a token against them.
-- It can be run again at any time; it changes no data.
--
--   BEGIN;
--   SELECT holdfast.check_fence('wallet:42', $1);    -- $1: the full token, hf1.L.<name hash>.<number>
--   UPDATE wallets SET cents = cents - 100 WHERE id = 42;
--   COMMIT;
--
-- check_fence locks the resource's mark until the transaction ends, so check and write are one step; an
-- error of it aborts the transaction, so nothing can be written after a refusal.
--
-- Error codes: ZF001 stale, ZF002 missing, ZF003 malformed, ZF004 number 0, ZF005 of another resource,
-- ZF006 of the other tier, ZF007 not fenceable.

CREATE SCHEMA IF NOT EXISTS holdfast;

CREATE TABLE IF NOT EXISTS holdfast.high_water_marks (
    resource text PRIMARY KEY CHECK (octet_length(resource) BETWEEN 1 AND 512),
    token bigint NOT NULL CHECK (token > 0)
);

COMMENT ON TABLE holdfast.high_water_marks IS
    'The highest fencing token that each resource has seen. A row that is deleted lets late writers in.';

-- Remembers the token, or raises ZF001 if a higher one has been seen.
CREATE OR REPLACE FUNCTION holdfast.raise_mark(resource text, token bigint) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog AS $function$
DECLARE
    highest bigint;
BEGIN
    IF token IS NULL OR token <= 0 THEN
        RAISE EXCEPTION 'the fencing token for "%" has the number %, which is never granted', resource, token
            USING ERRCODE = 'ZF004', HINT = 'Send the token of a lock that is held.';
    END IF;
    -- The row is locked until the transaction ends, also where the token is the same.
    INSERT INTO holdfast.high_water_marks AS marks (resource, token)
    VALUES (raise_mark.resource, raise_mark.token)
    ON CONFLICT ON CONSTRAINT high_water_marks_pkey DO UPDATE SET token = excluded.token
    WHERE marks.token <= excluded.token;
    IF NOT FOUND THEN
        SELECT marks.token INTO highest FROM holdfast.high_water_marks AS marks
        WHERE marks.resource = raise_mark.resource;
        RAISE EXCEPTION 'token % for "%" is out of date, % has been seen', token, resource, highest
            USING ERRCODE = 'ZF001', DETAIL = 'highest: ' || highest,
            HINT = 'The lock was lost. Do not send this write again: acquire the lock again, and begin with reading.';
    END IF;
END
$function$;

-- The whole rule, for a token in its full form. The name of the resource must come from the writer's code,
-- not from the sender of the token.
CREATE OR REPLACE FUNCTION holdfast.check_fence(
    resource text, fence text, accepts_best_effort boolean DEFAULT false
) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog AS $function$
DECLARE
    parts text[];
    number numeric;
    -- What is unknown is not allowed.
    best_effort boolean := coalesce(accepts_best_effort, false);
BEGIN
    IF fence IS NULL THEN
        RAISE EXCEPTION 'the write to "%" came without a fencing token', resource
            USING ERRCODE = 'ZF002', HINT = format('Take the lock "%s" and send its full token along.', resource);
    END IF;
    IF fence = '' THEN
        RAISE EXCEPTION 'the fencing token for "%" is empty, as that of a semaphore''s permit is', resource
            USING ERRCODE = 'ZF007', HINT = format('Take the lock "%s" exclusively.', resource);
    END IF;
    parts := regexp_match(fence, '^hf1\.([LB])\.([0-9a-f]{16})\.(0|[1-9][0-9]{0,18})$');
    IF parts IS NULL OR parts[3]::numeric >= 9223372036854775808 THEN
        RAISE EXCEPTION 'the fencing token for "%" cannot be read', resource
            USING ERRCODE = 'ZF003',
            HINT = 'Send the full token, hf1.<guarantee>.<name hash>.<number>, as it was granted.';
    END IF;
    number := parts[3]::numeric;
    IF number = 0 THEN
        RAISE EXCEPTION 'the fencing token for "%" has the number 0, which is never granted', resource
            USING ERRCODE = 'ZF004', HINT = 'Send the token of a lock that is held.';
    END IF;
    IF parts[2] IS DISTINCT FROM encode(substring(sha256(convert_to(resource, 'UTF8')) FROM 1 FOR 8), 'hex') THEN
        RAISE EXCEPTION 'the fencing token belongs to another resource than "%"', resource
            USING ERRCODE = 'ZF005',
            HINT = format('Take the lock "%s", by exactly this name, and send its token.', resource);
    END IF;
    IF parts[1] = 'B' AND NOT best_effort THEN
        RAISE EXCEPTION '"%" takes no best-effort token, since two holders of such a lock can overlap', resource
            USING ERRCODE = 'ZF006', HINT = 'Take the lock in the correctness tier.';
    END IF;
    IF parts[1] = 'L' AND best_effort THEN
        RAISE EXCEPTION '"%" takes best-effort tokens only; the numbers of the two tiers cannot be compared', resource
            USING ERRCODE = 'ZF006', HINT = 'Take the lock in the efficiency tier.';
    END IF;
    PERFORM holdfast.raise_mark(resource, number::bigint);
END
$function$;

-- Optional, for a table whose rows keep their mark themselves in a column `last_token bigint NOT NULL`:
--
--   CREATE TRIGGER fence BEFORE UPDATE ON wallets FOR EACH ROW
--   EXECUTE FUNCTION holdfast.refuse_going_back();
--
-- It refuses an update that sets a lower token than the row has. One that leaves the column alone passes:
-- the trigger is a net below the condition in the update, not its replacement.
CREATE OR REPLACE FUNCTION holdfast.refuse_going_back() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog AS $function$
BEGIN
    IF NEW.last_token IS NULL OR NEW.last_token < OLD.last_token THEN
        RAISE EXCEPTION 'token % for a row of "%" is out of date, % has been seen',
            NEW.last_token, TG_TABLE_NAME, OLD.last_token
            USING ERRCODE = 'ZF001', DETAIL = 'highest: ' || coalesce(OLD.last_token, 0),
            HINT = 'The lock was lost. Do not send this write again: acquire the lock again, and begin with reading.';
    END IF;
    RETURN NEW;
END
$function$;
