-- Preemptible workers: who wishes for idle hosts, who waits for hosts, and when a worker's work was told to go.

ALTER TABLE cluster ADD COLUMN preemptible_line {text};
ALTER TABLE cluster ADD COLUMN short_line {text};
CREATE INDEX cluster_preemptible ON cluster (preemptible_line) WHERE preemptible_line IS NOT NULL;
CREATE INDEX cluster_short ON cluster (short_line) WHERE short_line IS NOT NULL;
ALTER TABLE node ADD COLUMN warned_at {int};
