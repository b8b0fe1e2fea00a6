-- What Slurm has said of a job's end, found out later than its launcher ended: Slurm's word for the state.
-- '' where nobody has asked yet, or Slurm did not know yet.

ALTER TABLE jobs ADD COLUMN slurm_state TEXT NOT NULL DEFAULT '';
