-- Jobs: work run on a cluster, with its log and outputs.

CREATE TABLE job (
    id {text} NOT NULL,
    version {int} NOT NULL,
    account_id {text} NOT NULL,
    project_id {text} NOT NULL,
    cluster_id {text} NOT NULL,
    cluster_name {text} NOT NULL,
    state {text} NOT NULL,
    state_since {int} NOT NULL,
    because {text} NOT NULL,
    teardown {bool} NOT NULL,
    torn_down_at {int},
    uploaded_at {int},
    submitted_at {int},
    started_at {int},
    ended_at {int},
    cancel_wished_at {int},
    hidden_at {int},
    exit_code {int},
    log_bytes {int} NOT NULL,
    link_secret {text} NOT NULL,
    created_by {text} NOT NULL,
    created_at {int} NOT NULL,
    updated_at {int} NOT NULL,
    kept {int} NOT NULL,
    spec {text} NOT NULL,
    wanted {text} NOT NULL,
    CONSTRAINT job_id PRIMARY KEY (id)
) {strict};
CREATE INDEX job_by_project ON job (project_id, created_at, id);
CREATE INDEX job_open ON job (ended_at, id);
CREATE INDEX job_owing ON job (teardown, torn_down_at);
