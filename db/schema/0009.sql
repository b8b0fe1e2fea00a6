-- Whose a row is, in a store that users share: their uid. -1 in a file of one's own.

ALTER TABLE jobs ADD COLUMN owner INTEGER NOT NULL DEFAULT -1;
CREATE INDEX jobs_by_owner ON jobs (owner, start_time);

-- Layers are of somebody's model: each owner has figures apart.
ALTER TABLE layer_profiles RENAME TO layers_without_owner;
CREATE TABLE layer_profiles (
  owner              INTEGER NOT NULL,
  device_kind        TEXT    NOT NULL,
  model              TEXT    NOT NULL,
  layer              TEXT    NOT NULL,
  micro_batch        INTEGER NOT NULL,
  forward_s          REAL    NOT NULL,
  backward_s         REAL    NOT NULL,
  update_s           REAL    NOT NULL,
  gradient_variance  REAL    NOT NULL,
  count              INTEGER NOT NULL,
  spread             REAL    NOT NULL,
  measured_at        REAL    NOT NULL,
  weight_gradients_s REAL    NOT NULL,
  PRIMARY KEY (owner, device_kind, model, layer, micro_batch)
) WITHOUT ROWID;
INSERT INTO layer_profiles
  SELECT -1, device_kind, model, layer, micro_batch, forward_s, backward_s, update_s,
         gradient_variance, count, spread, measured_at, weight_gradients_s
    FROM layers_without_owner;
DROP TABLE layers_without_owner;
