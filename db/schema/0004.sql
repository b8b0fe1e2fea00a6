-- How well the planner's step held: of a run's last plan, in seconds; NULL in rows of older programs.

ALTER TABLE summaries ADD COLUMN micro_batches INTEGER;    -- of a step, of the replica with most
ALTER TABLE summaries ADD COLUMN predicted_step_s REAL;    -- NULL: nothing had been measured
ALTER TABLE summaries ADD COLUMN plan_step_s REAL;         -- measured: the median; NULL: no step after the warm-up
