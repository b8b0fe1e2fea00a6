-- What several users measure of one thing is kept apart, and told as db/told_figures.h says.

ALTER TABLE link_profiles RENAME TO links_without_owner;
CREATE TABLE link_profiles (
  cluster          TEXT    NOT NULL,
  from_node        TEXT    NOT NULL,
  to_node          TEXT    NOT NULL,
  owner            INTEGER NOT NULL,
  latency_s        REAL    NOT NULL,
  bytes_per_second REAL    NOT NULL,
  count            INTEGER NOT NULL,
  spread           REAL    NOT NULL,
  measured_at      REAL    NOT NULL,
  PRIMARY KEY (cluster, from_node, to_node, owner)
) WITHOUT ROWID;
INSERT INTO link_profiles
  SELECT cluster, from_node, to_node, -1, latency_s, bytes_per_second, count, spread, measured_at
    FROM links_without_owner;
DROP TABLE links_without_owner;

ALTER TABLE device_profiles RENAME TO devices_without_owner;
CREATE TABLE device_profiles (
  cluster             TEXT    NOT NULL,
  device_kind         TEXT    NOT NULL,
  node                TEXT    NOT NULL,
  owner               INTEGER NOT NULL,
  product_flops       REAL    NOT NULL,
  bytes_per_second    REAL    NOT NULL,
  transfer_s_per_byte REAL    NOT NULL,
  count               INTEGER NOT NULL,
  spread              REAL    NOT NULL,
  measured_at         REAL    NOT NULL,
  PRIMARY KEY (cluster, device_kind, node, owner)
) WITHOUT ROWID;
INSERT INTO device_profiles
  SELECT cluster, device_kind, node, -1, product_flops, bytes_per_second, transfer_s_per_byte, count,
         spread, measured_at
    FROM devices_without_owner;
DROP TABLE devices_without_owner;
