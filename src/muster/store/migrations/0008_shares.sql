-- Workers of several kinds: by the cluster's own term, from a pool, or preemptible with a notice.

ALTER TABLE node ADD COLUMN share {text} NOT NULL DEFAULT 'own';
ALTER TABLE node ADD COLUMN reclaim_at {int};
