-- Processor seconds for each byte that is sent to or received from other nodes; 0: not measured.

ALTER TABLE device_profiles ADD COLUMN transfer_s_per_byte REAL NOT NULL DEFAULT 0;
