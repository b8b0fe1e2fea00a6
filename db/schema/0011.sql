-- Figures that nobody has measured for long are found by their age (db/service/retention.h).

CREATE INDEX links_by_time ON link_profiles (measured_at);
CREATE INDEX devices_by_time ON device_profiles (measured_at);
CREATE INDEX layers_by_time ON layer_profiles (measured_at);
