-- idem, schema version 1: the records and what belongs to them.
--
-- For teams that run their own migrations: replace idem by your schema and records by your table, and run it as one transaction. It
-- is what PostgresStore::migrate runs, which also takes an advisory lock so that many processes may start at once.

CREATE SCHEMA IF NOT EXISTS idem;

CREATE TABLE idem.records (
    scope          text COLLATE "C" NOT NULL,
    key            text COLLATE "C" NOT NULL,
    fingerprint    bytea            NOT NULL,
    status         text             NOT NULL,
    attempt        int              NOT NULL,
    owner          uuid             NOT NULL,
    locked_at      timestamptz      NOT NULL,
    lease_ms       int              NOT NULL,
    effect_begun   boolean          NOT NULL DEFAULT false,
    unresolved     int              NOT NULL DEFAULT 0,
    -- Was in progress when the walk over locked_at passed it: see the maintenance row.
    suspect        boolean          NOT NULL DEFAULT false,
    recovery_point text,
    recovery_data  bytea,
    created_at     timestamptz      NOT NULL,
    expires_at     timestamptz      NOT NULL,
    response_code  int,
    response_head  bytea,
    response_body  bytea,
    PRIMARY KEY (scope, key),
    -- One, since the server reads the text of each check anew for every statement.
    CHECK (
        octet_length(scope) BETWEEN 1 AND 255 AND octet_length(key) BETWEEN 1 AND 255
        AND status IN ('in_progress', 'completed', 'failed') AND attempt >= 1 AND lease_ms >= 0 AND unresolved >= 0
        AND (recovery_point IS NULL) = (recovery_data IS NULL)
        AND (status = 'completed') = (response_head IS NOT NULL)
        AND (response_head IS NULL) = (response_body IS NULL)
    )
) WITH (
    -- Room for the completion beside the claim, so that completing is a HOT update.
    fillfactor = 50,
    autovacuum_vacuum_scale_factor = 0.02,
    autovacuum_vacuum_insert_scale_factor = 0.05,
    autovacuum_analyze_scale_factor = 0.05
);

-- Long bodies: several times as fast as the default, and hardly larger. A server that was built without it keeps its default.
DO $lz4$ BEGIN
    ALTER TABLE idem.records ALTER COLUMN response_body SET COMPRESSION lz4;
EXCEPTION WHEN feature_not_supported THEN NULL;
END $lz4$;

-- What purge walks. Completion writes the same expires_at again, which keeps it HOT.
CREATE INDEX records_expires_at_idx ON idem.records (expires_at);
-- What the walk for stuck records follows. It changes with ownership only.
CREATE INDEX records_locked_at_idx ON idem.records (locked_at);
-- The few records that were not settled when the walk passed them. A partial index on status would end HOT for every completion.
CREATE INDEX records_suspect_idx ON idem.records (locked_at, scope, key) WHERE suspect;

CREATE TABLE idem.records_meta (
    only_row       boolean PRIMARY KEY DEFAULT true CHECK (only_row),
    schema_version int NOT NULL,
    -- The walk has passed every record with an earlier locked_at and marked those that were not settled.
    walked_until   timestamptz NOT NULL DEFAULT 'epoch'
);

INSERT INTO idem.records_meta (schema_version) VALUES (1);
