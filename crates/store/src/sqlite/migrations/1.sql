-- Schema 1. Words, not numbers, stand for states, so that the file can be read by people. Times are milliseconds since
-- the Unix epoch unless the name says otherwise. There are no foreign keys: a row that vanished must not take its
-- batch along.

CREATE TABLE settings (
  name  TEXT NOT NULL PRIMARY KEY,
  value BLOB NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE services (
  id             INTEGER PRIMARY KEY,
  name           TEXT    NOT NULL UNIQUE,
  timeout_ms     INTEGER NOT NULL CHECK (timeout_ms >= 0),
  budget         INTEGER NOT NULL CHECK (budget >= 0),
  result_cap     INTEGER NOT NULL CHECK (result_cap >= 0),
  retry_delay_ms INTEGER NOT NULL CHECK (retry_delay_ms >= 0),
  paused         INTEGER NOT NULL CHECK (paused IN (0, 1))
) STRICT;

CREATE TABLE corpora (
  id     INTEGER PRIMARY KEY,
  name   TEXT NOT NULL UNIQUE,
  root   BLOB NOT NULL,
  kind   TEXT NOT NULL CHECK (kind IN ('ordinary', 'sandbox')),
  parent INTEGER
) STRICT;

CREATE TABLE dispatchers (
  id       INTEGER PRIMARY KEY,
  host     TEXT    NOT NULL,
  endpoint TEXT    NOT NULL,
  archive  TEXT,
  beat_ms  INTEGER NOT NULL,
  state    TEXT    NOT NULL CHECK (state IN ('live', 'gone'))
) STRICT;

CREATE TABLE workers (
  name        TEXT    NOT NULL,
  incarnation TEXT    NOT NULL,
  dispatcher  INTEGER NOT NULL,
  first_ms    INTEGER NOT NULL,
  last_ms     INTEGER NOT NULL,
  PRIMARY KEY (name, incarnation)
) STRICT, WITHOUT ROWID;

-- AUTOINCREMENT: an id is never given twice, so that the token of a deleted task names nothing.
CREATE TABLE tasks (
  id             INTEGER PRIMARY KEY AUTOINCREMENT,
  service        INTEGER NOT NULL,
  corpus         INTEGER NOT NULL,
  entry          BLOB    NOT NULL,
  input_size     INTEGER NOT NULL CHECK (input_size >= 0),
  input_mtime_ns INTEGER NOT NULL,
  state          TEXT    NOT NULL CHECK (state IN ('ready', 'leased', 'done', 'dead', 'cancelled')),
  run            INTEGER NOT NULL CHECK (run >= 1),
  epoch          INTEGER NOT NULL CHECK (epoch >= 0),
  charged        INTEGER NOT NULL CHECK (charged >= 0),
  freed          INTEGER NOT NULL CHECK (freed >= 0),
  timeout_ms     INTEGER,           -- the run's, taken from the service at its first claim
  priority       INTEGER NOT NULL,
  not_before_ms  INTEGER NOT NULL,  -- 0: nothing to wait for
  owner          INTEGER,           -- the dispatcher of the newest lease, while that is open
  limit_until_ms INTEGER,
  accepted_epoch INTEGER,           -- what stands for the run: its claim, how it went, who filed it
  status         TEXT CHECK (status IN ('no_problem', 'warning', 'error', 'fatal', 'invalid')),
  origin         TEXT CHECK (origin IN ('worker', 'reaper_stand_in', 'last_attempt_stand_in')),
  last_cause     TEXT,              -- a message as JSON
  last_reason    TEXT,              -- a message as JSON
  UNIQUE (service, corpus, entry)
) STRICT;

CREATE INDEX tasks_ready   ON tasks (service, priority DESC, id)  WHERE state = 'ready' AND not_before_ms = 0;
CREATE INDEX tasks_delayed ON tasks (service, not_before_ms, id)  WHERE state = 'ready' AND not_before_ms <> 0;
CREATE INDEX tasks_owned   ON tasks (owner, id)                   WHERE owner IS NOT NULL;

CREATE TABLE attempts (
  task        INTEGER NOT NULL,
  epoch       INTEGER NOT NULL,
  run         INTEGER NOT NULL,
  dispatcher  INTEGER NOT NULL,     -- 0: not known
  worker      TEXT,
  incarnation TEXT,
  handed_ms   INTEGER,
  began_ms    INTEGER,
  ended_ms    INTEGER,
  ending      TEXT,
  charged     INTEGER NOT NULL CHECK (charged IN (0, 1)),
  why         TEXT,                 -- a message as JSON
  PRIMARY KEY (task, epoch)
) STRICT, WITHOUT ROWID;

-- seq is the order of commits. published: 0 not yet, 1 in place or nothing to place, 2 overtaken before it was.
CREATE TABLE results (
  seq       INTEGER PRIMARY KEY,
  task      INTEGER NOT NULL,
  epoch     INTEGER NOT NULL,
  run       INTEGER NOT NULL,
  status    TEXT    NOT NULL,
  origin    TEXT    NOT NULL,
  published INTEGER NOT NULL CHECK (published IN (0, 1, 2)),
  category  TEXT,                   -- of its worst message
  what      TEXT,
  UNIQUE (task, epoch)
) STRICT;

CREATE INDEX results_unpublished ON results (seq) WHERE published = 0;

CREATE TABLE parts (
  task     INTEGER NOT NULL,
  epoch    INTEGER NOT NULL,
  n        INTEGER NOT NULL,
  name     TEXT    NOT NULL,
  pack     INTEGER,
  place    BLOB    NOT NULL,
  "offset" INTEGER NOT NULL CHECK ("offset" >= 0),
  length   INTEGER NOT NULL CHECK (length >= 0),
  sha256   TEXT    NOT NULL,
  PRIMARY KEY (task, epoch, n)
) STRICT, WITHOUT ROWID;

CREATE TABLE messages (
  task     INTEGER NOT NULL,
  epoch    INTEGER NOT NULL,
  n        INTEGER NOT NULL,
  severity TEXT    NOT NULL,
  category TEXT    NOT NULL,
  what     TEXT    NOT NULL,
  details  TEXT    NOT NULL,
  PRIMARY KEY (task, epoch, n)
) STRICT, WITHOUT ROWID;

CREATE TABLE packs (
  id         INTEGER PRIMARY KEY,
  dispatcher INTEGER NOT NULL,
  path       BLOB    NOT NULL,
  state      TEXT    NOT NULL CHECK (state IN ('open', 'closed', 'suspect', 'deleted')),
  length     INTEGER NOT NULL CHECK (length >= 0),
  live_bytes INTEGER NOT NULL
) STRICT;

-- Only sums over dispatchers balance: an attempt may begin at one and end at another.
CREATE TABLE counters (
  dispatcher INTEGER NOT NULL,
  service    INTEGER NOT NULL,
  corpus     INTEGER NOT NULL,
  worker     TEXT    NOT NULL,
  kind       TEXT    NOT NULL,
  n          INTEGER NOT NULL,
  PRIMARY KEY (dispatcher, service, corpus, worker, kind)
) STRICT, WITHOUT ROWID;

CREATE TABLE control (
  seq     INTEGER PRIMARY KEY AUTOINCREMENT,
  at_ms   INTEGER NOT NULL,
  actor   TEXT    NOT NULL,
  kind    TEXT    NOT NULL,
  args    TEXT    NOT NULL,
  cursor  INTEGER,
  done_ms INTEGER,
  answer  TEXT
) STRICT;

CREATE INDEX control_open ON control (seq) WHERE done_ms IS NULL;
