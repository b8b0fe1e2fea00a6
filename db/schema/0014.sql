-- A node's snapshot is stored once, however many jobs ran there. Rows of older programs have its text in place of the hash.

CREATE TABLE snapshots (
  hash TEXT PRIMARY KEY,  -- SHA-256 of text
  text TEXT NOT NULL      -- JSON, without what each look at a node finds otherwise (db/snapshots.h)
);
ALTER TABLE nodes RENAME COLUMN snapshot TO snapshot_hash;
CREATE INDEX nodes_by_snapshot ON nodes (snapshot_hash);
