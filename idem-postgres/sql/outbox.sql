-- idem, the outbox: events that are written in the transaction that they tell of, and published afterwards.
--
-- For teams that run their own migrations: replace idem.outbox by your schema and table. It is what Outbox::migrate runs.

CREATE SCHEMA IF NOT EXISTS idem;

CREATE TABLE IF NOT EXISTS idem.outbox (
    -- The order within an aggregate.
    id           bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    -- Under which name consumers recognise the event when it comes again.
    event_id     text             NOT NULL,
    topic        text             NOT NULL,
    -- Events of one aggregate are published one after the other.
    aggregate    text COLLATE "C" NOT NULL,
    payload      bytea            NOT NULL,
    created_at   timestamptz      NOT NULL DEFAULT clock_timestamp(),
    attempts     int              NOT NULL DEFAULT 0,
    -- Not before then: after a failure the relay waits.
    available_at timestamptz      NOT NULL DEFAULT clock_timestamp(),
    -- Given up: somebody has to look.
    dead_at      timestamptz
) WITH (
    autovacuum_vacuum_scale_factor = 0.02,
    autovacuum_vacuum_insert_scale_factor = 0.05,
    autovacuum_analyze_scale_factor = 0.05
);

CREATE INDEX IF NOT EXISTS outbox_aggregate_idx ON idem.outbox (aggregate, id);
