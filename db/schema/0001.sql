-- The first schema of the profile store. Times are UTC in seconds since 1970 (REAL); a text without
-- content is ''. A column is NULL only if the value was never known (or was not a number).

PRAGMA application_id = 0x41547073;  -- "ATps": tells our files from those of other programs

CREATE TABLE jobs (
  id                     INTEGER PRIMARY KEY AUTOINCREMENT,  -- never reused: names local runs
  cluster                TEXT    NOT NULL,
  slurm_job_id           INTEGER NOT NULL CHECK (slurm_job_id >= 0),  -- 0: a local run
  restart_count          INTEGER NOT NULL CHECK (restart_count >= 0),
  submit_time            REAL    NOT NULL,
  run_number             INTEGER NOT NULL,  -- of the launcher inside one Slurm job, from 0
  user                   TEXT    NOT NULL,
  name                   TEXT    NOT NULL,
  run_dir                TEXT    NOT NULL,
  config                 TEXT    NOT NULL,
  options                TEXT    NOT NULL,
  adaptive_train_version TEXT    NOT NULL,
  start_time             REAL    NOT NULL,
  end_time               REAL,
  state                  TEXT    NOT NULL,
  exit_code              INTEGER,
  launcher_host          TEXT    NOT NULL,  -- identifies the process
  launcher_boot_id       TEXT    NOT NULL,
  launcher_pid_namespace TEXT    NOT NULL,
  launcher_pid           INTEGER NOT NULL,
  launcher_start_ticks   INTEGER NOT NULL,
  UNIQUE (cluster, slurm_job_id, restart_count, submit_time, run_number)
);
CREATE INDEX jobs_by_start ON jobs (start_time);
CREATE INDEX jobs_by_slurm_job ON jobs (slurm_job_id);

CREATE TABLE nodes (
  job_id       INTEGER NOT NULL REFERENCES jobs (id) ON DELETE CASCADE,
  position     INTEGER NOT NULL,  -- in the allocation, from 0
  name         TEXT    NOT NULL,
  source       TEXT    NOT NULL,  -- who ran the probe: prolog or user
  cpu_model    TEXT    NOT NULL,
  cores        INTEGER NOT NULL,
  memory_bytes INTEGER NOT NULL,
  snapshot     TEXT    NOT NULL,  -- JSON
  PRIMARY KEY (job_id, position),
  UNIQUE (job_id, name)
);

CREATE TABLE plans (
  job_id           INTEGER NOT NULL REFERENCES jobs (id) ON DELETE CASCADE,
  sequence         INTEGER NOT NULL,  -- from 0; the last one is in force
  plan             TEXT    NOT NULL,  -- JSON
  ranks            INTEGER NOT NULL,
  predicted_step_s REAL,
  why              TEXT    NOT NULL,
  PRIMARY KEY (job_id, sequence)
);

CREATE TABLE launches (
  job_id  INTEGER NOT NULL REFERENCES jobs (id) ON DELETE CASCADE,
  attempt INTEGER NOT NULL,
  started REAL    NOT NULL,
  outcome TEXT    NOT NULL,  -- ok, retried, failed
  reason  TEXT    NOT NULL,
  PRIMARY KEY (job_id, attempt)
);

CREATE TABLE failures (
  id        INTEGER PRIMARY KEY,
  job_id    INTEGER NOT NULL REFERENCES jobs (id) ON DELETE CASCADE,
  time      REAL    NOT NULL,
  step      INTEGER,
  rank      INTEGER,
  host      TEXT    NOT NULL,
  kind      TEXT    NOT NULL,
  operation TEXT    NOT NULL,
  peer      TEXT    NOT NULL,
  cause     TEXT    NOT NULL
);
CREATE INDEX failures_by_job ON failures (job_id);

CREATE TABLE summaries (
  job_id            INTEGER PRIMARY KEY REFERENCES jobs (id) ON DELETE CASCADE,
  steps             INTEGER NOT NULL,
  tokens            INTEGER NOT NULL,
  final_loss        REAL,
  validation_loss   REAL,
  tokens_per_s      REAL,
  mean_step_s       REAL,
  robustness        REAL,
  mfu               REAL,
  grad_bytes        INTEGER NOT NULL,
  param_bytes       INTEGER NOT NULL,
  activation_bytes  INTEGER NOT NULL,
  peak_memory_bytes INTEGER NOT NULL
);
