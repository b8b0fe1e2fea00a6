-- Why a job ended, which task of an array it was, and which ledgers (docs/formats.md) were taken
-- in.

ALTER TABLE jobs ADD COLUMN reason TEXT NOT NULL DEFAULT '';  -- one line; '' while it runs or where all went well
ALTER TABLE jobs ADD COLUMN array_job_id INTEGER;             -- NULL: no task of an array
ALTER TABLE jobs ADD COLUMN array_task_id INTEGER;
ALTER TABLE jobs ADD COLUMN uid TEXT;  -- names the run in ledgers; NULL in rows of older programs

CREATE UNIQUE INDEX jobs_by_uid ON jobs (uid);
CREATE INDEX jobs_by_array ON jobs (array_job_id);

CREATE TABLE ledgers (
  uid     TEXT PRIMARY KEY,  -- of the run that wrote it
  entries INTEGER NOT NULL   -- the number of its entries in this store
) WITHOUT ROWID;
