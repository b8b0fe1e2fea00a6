-- Of backward_s, what a backward in halves leaves to its second half; 0 for a block: not measured apart.

ALTER TABLE layer_profiles ADD COLUMN weight_gradients_s REAL NOT NULL DEFAULT 0;
