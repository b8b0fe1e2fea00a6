-- Failures carry their job's cluster and owner: those of a place are read from one index alone, in a store of a million jobs.

ALTER TABLE failures ADD COLUMN cluster TEXT NOT NULL DEFAULT '';
ALTER TABLE failures ADD COLUMN owner INTEGER NOT NULL DEFAULT -1;
UPDATE failures SET (cluster, owner) = (SELECT cluster, owner FROM jobs WHERE id = failures.job_id)
  WHERE job_id IN (SELECT id FROM jobs);

DROP INDEX failures_by_host;
CREATE INDEX failures_by_place ON failures (cluster, host, blamed, time, owner, kind, peer_host);
