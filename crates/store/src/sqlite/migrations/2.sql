-- Schema 2: commands that are carried out piece by piece, workers as they are now, caps and priorities of services.

-- Made anew for AUTOINCREMENT: services and corpora can be deleted, and whoever still knows the number of a deleted one
-- must not meet another. turn counts tasks claimed since the last one that was taken from the lowest priority.
CREATE TABLE services_2 (
  id             INTEGER PRIMARY KEY AUTOINCREMENT,
  name           TEXT    NOT NULL UNIQUE,
  timeout_ms     INTEGER NOT NULL CHECK (timeout_ms >= 0),
  budget         INTEGER NOT NULL CHECK (budget >= 0),
  result_cap     INTEGER NOT NULL CHECK (result_cap >= 0),
  retry_delay_ms INTEGER NOT NULL CHECK (retry_delay_ms >= 0),
  paused         INTEGER NOT NULL CHECK (paused IN (0, 1)),
  max_in_flight  INTEGER CHECK (max_in_flight > 0),  -- empty: as many as the process may
  priority       INTEGER NOT NULL DEFAULT 0,
  turn           INTEGER NOT NULL DEFAULT 0 CHECK (turn >= 0)
) STRICT;
INSERT INTO services_2 (id, name, timeout_ms, budget, result_cap, retry_delay_ms, paused)
SELECT id, name, timeout_ms, budget, result_cap, retry_delay_ms, paused FROM services ORDER BY id;
DROP TABLE services;
ALTER TABLE services_2 RENAME TO services;

CREATE TABLE corpora_2 (
  id     INTEGER PRIMARY KEY AUTOINCREMENT,
  name   TEXT NOT NULL UNIQUE,
  root   BLOB NOT NULL,
  kind   TEXT NOT NULL CHECK (kind IN ('ordinary', 'sandbox')),
  parent INTEGER
) STRICT;
INSERT INTO corpora_2 (id, name, root, kind, parent) SELECT id, name, root, kind, parent FROM corpora ORDER BY id;
DROP TABLE corpora;
ALTER TABLE corpora_2 RENAME TO corpora;

ALTER TABLE workers ADD COLUMN services  TEXT    NOT NULL DEFAULT '[]';  -- names as JSON
ALTER TABLE workers ADD COLUMN slots     INTEGER NOT NULL DEFAULT 0 CHECK (slots >= 0);
ALTER TABLE workers ADD COLUMN connected INTEGER NOT NULL DEFAULT 0 CHECK (connected IN (0, 1));

CREATE INDEX workers_heard     ON workers (last_ms DESC, name, incarnation);
CREATE INDEX workers_connected ON workers (dispatcher) WHERE connected = 1;

CREATE INDEX counters_worker ON counters (worker);

-- What the pieces so far have changed; cursor is the task after which the next one begins.
ALTER TABLE control ADD COLUMN changed INTEGER NOT NULL DEFAULT 0;
