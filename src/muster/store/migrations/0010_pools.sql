-- Hosts set apart: pools, and which of them a host is in.

CREATE TABLE pool (
    id {text} NOT NULL,
    version {int} NOT NULL,
    name {text} NOT NULL,
    account_id {text} NOT NULL,
    project_id {text},
    region {text} NOT NULL,
    gpu_type {text} NOT NULL,
    created_at {int} NOT NULL,
    updated_at {int} NOT NULL,
    CONSTRAINT pool_id PRIMARY KEY (id),
    CONSTRAINT pool_name UNIQUE (name)
) {strict};
CREATE INDEX pool_by_account ON pool (account_id, created_at, id);

ALTER TABLE host ADD COLUMN pool_id {text};
CREATE INDEX host_by_pool ON host (pool_id, id) WHERE pool_id IS NOT NULL;
