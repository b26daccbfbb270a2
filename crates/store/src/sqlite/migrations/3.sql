-- Schema 3: parts in packs. A pack's row gives its place a number, so that a part needs no name of its own; where it ends
-- and how much of it is wanted is told by its parts. No number is given twice.
DROP TABLE packs;

CREATE TABLE packs (
  id    INTEGER PRIMARY KEY AUTOINCREMENT,
  place BLOB NOT NULL UNIQUE
) STRICT;

CREATE INDEX parts_packed ON parts (pack, "offset") WHERE pack IS NOT NULL;
