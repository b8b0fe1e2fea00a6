-- Jobs have the account that they are charged to: its coordinators may see them.

ALTER TABLE jobs ADD COLUMN account TEXT NOT NULL DEFAULT '';
