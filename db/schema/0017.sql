-- For how long Slurm has seen a user's jobs on a node (db/presence.h), and failures that stay when their job is removed
-- (db/service/retention.h). Of what was seen before, only the last time is known, and those jobs may run on for hours.

CREATE TABLE presence_with_times (
  cluster TEXT    NOT NULL,
  node    TEXT    NOT NULL,
  owner   INTEGER NOT NULL,
  since   REAL    NOT NULL,  -- the first job's start
  until   REAL    NOT NULL,  -- the last job's end, as far as it is known or allowed
  PRIMARY KEY (cluster, node, owner)
) WITHOUT ROWID;
INSERT INTO presence_with_times (cluster, node, owner, since, until)
  SELECT cluster, node, owner, 0, seen_at + 43200 FROM presence;
DROP TABLE presence;
ALTER TABLE presence_with_times RENAME TO presence;
CREATE INDEX presence_by_until ON presence (until);

CREATE TABLE lasting_failures (
  id        INTEGER PRIMARY KEY,
  job_id    INTEGER REFERENCES jobs (id) ON DELETE SET NULL,  -- NULL: the job has been removed, and with it what is private
  time      REAL    NOT NULL,
  step      INTEGER,
  rank      INTEGER,
  host      TEXT    NOT NULL,
  kind      TEXT    NOT NULL,
  operation TEXT    NOT NULL,
  peer      TEXT    NOT NULL,
  cause     TEXT    NOT NULL,
  peer_host TEXT    NOT NULL DEFAULT '',  -- of peer; '' where there is none
  blamed    TEXT    NOT NULL DEFAULT '',  -- node, link or '' for nobody
  cluster   TEXT    NOT NULL DEFAULT '',
  owner     INTEGER NOT NULL DEFAULT -1
);
INSERT INTO lasting_failures (id, job_id, time, step, rank, host, kind, operation, peer, cause, peer_host, blamed, cluster, owner)
  SELECT id, job_id, time, step, rank, host, kind, operation, peer, cause, peer_host, blamed, cluster, owner FROM failures
    WHERE job_id IN (SELECT id FROM jobs);
DROP TABLE failures;
ALTER TABLE lasting_failures RENAME TO failures;
CREATE INDEX failures_by_job ON failures (job_id);
CREATE INDEX failures_by_place ON failures (cluster, host, blamed, time, owner, kind, peer_host);
CREATE INDEX failures_without_job ON failures (time) WHERE job_id IS NULL;

-- Whoever removes a job removes what is private, also by hand: texts, and names that are none of a host.
CREATE TRIGGER failures_outlive_jobs BEFORE DELETE ON jobs BEGIN
  DELETE FROM failures WHERE job_id = old.id AND (blamed = '' OR length(host) > 64 OR length(peer_host) > 64);
  UPDATE failures SET job_id = NULL, step = NULL, rank = NULL, operation = '', peer = '', cause = '' WHERE job_id = old.id;
END;
