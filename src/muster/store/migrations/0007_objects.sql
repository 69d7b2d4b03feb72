-- Accounts' access to object storage.

CREATE TABLE object_access (
    id {text} NOT NULL,
    version {int} NOT NULL,
    account_id {text} NOT NULL,
    access_key {text} NOT NULL,
    secret_key {text} NOT NULL,
    created_at {int} NOT NULL,
    updated_at {int} NOT NULL,
    CONSTRAINT object_access_id PRIMARY KEY (id)
) {strict};
