-- What failed, in the words of core/failure_kind.h, and what that counts against. Older programs wrote
-- silent, killed, reported and lost; their text tells more.

ALTER TABLE failures ADD COLUMN peer_host TEXT NOT NULL DEFAULT '';  -- of peer; '' where there is none
ALTER TABLE failures ADD COLUMN blamed TEXT NOT NULL DEFAULT '';     -- node, link or '' for nobody

UPDATE failures SET blamed = 'node' WHERE kind = 'silent';
UPDATE failures SET kind = CASE
  WHEN kind = 'silent' THEN 'node_silent'
  WHEN kind = 'lost' AND operation IN ('launch', 'wire-up') THEN 'launch'
  WHEN kind = 'lost' THEN 'link_lost'
  WHEN cause LIKE '%No space left on device%' THEN 'disk_full'
  WHEN cause LIKE '%Disk quota exceeded%' THEN 'quota'
  WHEN kind = 'reported' AND operation IN ('memory', 'allocation') THEN 'out_of_memory'
  WHEN kind = 'reported' AND operation IN ('computing', 'device') THEN 'device_error'
  WHEN kind = 'reported' AND operation = 'comparing replicas' THEN 'diverged'
  WHEN kind = 'reported' AND operation IN ('resume', 'reading the configuration', 'reading the plan',
                                           'opening the data', 'reading checkpoint.start') THEN 'configuration'
  WHEN kind = 'reported' AND operation IN ('writing a checkpoint', 'reading a checkpoint',
                                           'verifying a checkpoint', 'looking for checkpoints') THEN 'storage'
  WHEN kind = 'killed' AND (cause LIKE '%signal 11 %' OR cause LIKE '%signal 6 %' OR cause LIKE '%signal 7 %'
                            OR cause LIKE '%signal 8 %' OR cause LIKE '%signal 4 %' OR cause LIKE '%Segmentation fault%'
                            OR cause LIKE '%Aborted%' OR cause LIKE '%exit code%') THEN 'crashed'
  WHEN kind = 'killed' AND cause LIKE 'its process ended%' THEN 'killed'
  ELSE 'unknown'
END;
