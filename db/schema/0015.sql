-- When nodes went down by Slurm's word: such a failure counts for everybody without other users' reports (db/outages.h).

CREATE TABLE outages (
  cluster TEXT NOT NULL,
  node    TEXT NOT NULL,
  time    REAL NOT NULL,
  PRIMARY KEY (cluster, node, time)
) WITHOUT ROWID;
