-- What jobs measured: one row per thing, with the running mean of its figures (profile_merge.h).
-- Units are seconds, bytes per second and FLOP/s; measured_at is the last time, in UTC seconds
-- since 1970.

CREATE TABLE link_profiles (
  cluster          TEXT    NOT NULL,
  from_node        TEXT    NOT NULL,
  to_node          TEXT    NOT NULL,
  latency_s        REAL    NOT NULL,
  bytes_per_second REAL    NOT NULL,
  count            INTEGER NOT NULL,
  spread           REAL    NOT NULL,
  measured_at      REAL    NOT NULL,
  PRIMARY KEY (cluster, from_node, to_node)
) WITHOUT ROWID;

CREATE TABLE device_profiles (
  cluster          TEXT    NOT NULL,
  device_kind      TEXT    NOT NULL,
  node             TEXT    NOT NULL,
  product_flops    REAL    NOT NULL,
  bytes_per_second REAL    NOT NULL,
  count            INTEGER NOT NULL,
  spread           REAL    NOT NULL,
  measured_at      REAL    NOT NULL,
  PRIMARY KEY (cluster, device_kind, node)
) WITHOUT ROWID;

CREATE TABLE layer_profiles (
  device_kind       TEXT    NOT NULL,
  model             TEXT    NOT NULL,
  layer             TEXT    NOT NULL,
  micro_batch       INTEGER NOT NULL,
  forward_s         REAL    NOT NULL,
  backward_s        REAL    NOT NULL,
  update_s          REAL    NOT NULL,
  gradient_variance REAL    NOT NULL,
  count             INTEGER NOT NULL,
  spread            REAL    NOT NULL,
  measured_at       REAL    NOT NULL,
  PRIMARY KEY (device_kind, model, layer, micro_batch)
) WITHOUT ROWID;

CREATE INDEX failures_by_host ON failures (host, time);
