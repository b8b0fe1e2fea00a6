-- On which nodes Slurm has seen jobs of a user: what he reports of others counts for him alone (db/presence.h).

CREATE TABLE presence (
  cluster TEXT    NOT NULL,
  node    TEXT    NOT NULL,
  owner   INTEGER NOT NULL,
  seen_at REAL    NOT NULL,  -- the last time
  PRIMARY KEY (cluster, node, owner)
) WITHOUT ROWID;
