-- Remediations, and a node's part in them.

CREATE TABLE remediation (
    id {text} NOT NULL,
    version {int} NOT NULL,
    account_id {text} NOT NULL,
    project_id {text} NOT NULL,
    cluster_id {text} NOT NULL,
    node_id {text} NOT NULL,
    node_name {text} NOT NULL,
    host_id {text},
    open_node_id {text},
    mode {text} NOT NULL,
    state {text} NOT NULL,
    trigger {text} NOT NULL,
    reason {text} NOT NULL,
    requested_by {text} NOT NULL,
    reviewed_by {text} NOT NULL,
    review_comment {text} NOT NULL,
    reviewed_at {int},
    started_at {int},
    ended_at {int},
    generation {int} NOT NULL,
    cordoned {bool} NOT NULL,
    error {text} NOT NULL,
    created_at {int} NOT NULL,
    updated_at {int} NOT NULL,
    evidence {text} NOT NULL,
    CONSTRAINT remediation_id PRIMARY KEY (id),
    CONSTRAINT remediation_open UNIQUE (open_node_id)
) {strict};
CREATE INDEX remediation_by_cluster ON remediation (cluster_id, created_at, id);
CREATE INDEX remediation_by_state ON remediation (state, cluster_id);

ALTER TABLE node ADD COLUMN mending {text} NOT NULL DEFAULT '{}';
