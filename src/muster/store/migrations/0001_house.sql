-- The house: a table per noun (store/schema.py declares them, a test compares), the logs, the slots, the work.

CREATE TABLE account (
    id {text} NOT NULL,
    version {int} NOT NULL,
    number {int} NOT NULL,
    name {text} NOT NULL,
    postpaid {bool} NOT NULL,
    created_at {int} NOT NULL,
    CONSTRAINT account_id PRIMARY KEY (id),
    CONSTRAINT account_number UNIQUE (number),
    CONSTRAINT account_name UNIQUE (name)
) {strict};

CREATE TABLE project (
    id {text} NOT NULL,
    version {int} NOT NULL,
    number {int} NOT NULL,
    account_id {text} NOT NULL,
    name {text} NOT NULL,
    slug {text} NOT NULL,
    gpu_quota {int},
    created_at {int} NOT NULL,
    CONSTRAINT project_id PRIMARY KEY (id),
    CONSTRAINT project_number UNIQUE (number),
    CONSTRAINT project_slug UNIQUE (account_id, slug)
) {strict};

CREATE TABLE member (
    id {text} NOT NULL,
    version {int} NOT NULL,
    number {int} NOT NULL,
    account_id {text} NOT NULL,
    project_id {text} NOT NULL,
    name {text} NOT NULL,
    email {text} NOT NULL,
    role {text} NOT NULL,
    created_at {int} NOT NULL,
    CONSTRAINT member_id PRIMARY KEY (id),
    CONSTRAINT member_number UNIQUE (number)
) {strict};
CREATE INDEX member_by_project ON member (project_id, created_at, id);

CREATE TABLE api_key (
    id {text} NOT NULL,
    version {int} NOT NULL,
    digest {text} NOT NULL,
    prefix {text} NOT NULL,
    name {text} NOT NULL,
    role {text} NOT NULL,
    account_id {text},
    project_id {text},
    member_id {text},
    created_at {int} NOT NULL,
    last_used_at {int},
    revoked_at {int},
    CONSTRAINT api_key_id PRIMARY KEY (id),
    CONSTRAINT api_key_digest UNIQUE (digest)
) {strict};
CREATE INDEX api_key_by_project ON api_key (project_id, created_at, id);

CREATE TABLE region (
    id {text} NOT NULL,
    version {int} NOT NULL,
    number {int} NOT NULL,
    title {text} NOT NULL,
    CONSTRAINT region_id PRIMARY KEY (id),
    CONSTRAINT region_number UNIQUE (number)
) {strict};

CREATE TABLE gpu_type (
    id {text} NOT NULL,
    version {int} NOT NULL,
    title {text} NOT NULL,
    memory_gib {int} NOT NULL,
    nvswitch_count {int} NOT NULL,
    nvswitch_type {text} NOT NULL,
    ib_hca_count {int} NOT NULL,
    ib_hca_type {text} NOT NULL,
    CONSTRAINT gpu_type_id PRIMARY KEY (id)
) {strict};

CREATE TABLE instance_type (
    id {text} NOT NULL,
    version {int} NOT NULL,
    number {int} NOT NULL,
    gpu_type {text} NOT NULL,
    gpus {int} NOT NULL,
    cpus {int} NOT NULL,
    memory_gib {int} NOT NULL,
    scratch_gib {int} NOT NULL,
    CONSTRAINT instance_type_id PRIMARY KEY (id),
    CONSTRAINT instance_type_number UNIQUE (number)
) {strict};

CREATE TABLE image (
    id {text} NOT NULL,
    version {int} NOT NULL,
    number {int} NOT NULL,
    region {text} NOT NULL,
    os {text} NOT NULL,
    cuda_version {text} NOT NULL,
    driver_version {text} NOT NULL,
    flavour {text} NOT NULL,
    title {text} NOT NULL,
    CONSTRAINT image_id PRIMARY KEY (id),
    CONSTRAINT image_number UNIQUE (number)
) {strict};

CREATE TABLE price (
    id {text} NOT NULL,
    version {int} NOT NULL,
    number {int} NOT NULL,
    item {text} NOT NULL,
    region {text} NOT NULL,
    billing {text} NOT NULL,
    committed_days {int} NOT NULL,
    unit {text} NOT NULL,
    micro {int} NOT NULL,
    currency {text} NOT NULL,
    valid_from {int} NOT NULL,
    CONSTRAINT price_id PRIMARY KEY (id),
    CONSTRAINT price_number UNIQUE (number)
) {strict};

CREATE TABLE host (
    id {text} NOT NULL,
    version {int} NOT NULL,
    name {text} NOT NULL,
    region {text} NOT NULL,
    pod {text} NOT NULL,
    leaf {text} NOT NULL,
    role {text} NOT NULL,
    gpu_type {text} NOT NULL,
    slots {int} NOT NULL,
    cpus {int} NOT NULL,
    memory_gib {int} NOT NULL,
    substrate {text} NOT NULL,
    cordoned {bool} NOT NULL,
    cordon_reason {text} NOT NULL,
    health {text} NOT NULL,
    created_at {int} NOT NULL,
    CONSTRAINT host_id PRIMARY KEY (id),
    CONSTRAINT host_name UNIQUE (name)
) {strict};
CREATE INDEX host_by_age ON host (created_at, id);
CREATE INDEX host_by_region ON host (region, created_at, id);

CREATE TABLE lease (
    id {text} NOT NULL,
    version {int} NOT NULL,
    host_id {text} NOT NULL,
    slots {int} NOT NULL,
    node_id {text} NOT NULL,
    cluster_id {text} NOT NULL,
    project_id {text} NOT NULL,
    generation {int} NOT NULL,
    taken_at {int} NOT NULL,
    CONSTRAINT lease_id PRIMARY KEY (id)
) {strict};
CREATE INDEX lease_by_cluster ON lease (cluster_id);
CREATE INDEX lease_by_host ON lease (host_id);

CREATE TABLE volume (
    id {text} NOT NULL,
    version {int} NOT NULL,
    number {int} NOT NULL,
    account_id {text} NOT NULL,
    project_id {text} NOT NULL,
    name {text} NOT NULL,
    live_name {text},
    region {text} NOT NULL,
    size_gib {int} NOT NULL,
    actual_gib {int} NOT NULL,
    flavour {text} NOT NULL,
    phase {text} NOT NULL,
    phase_since {int} NOT NULL,
    because {text} NOT NULL,
    generation {int} NOT NULL,
    delete_wished_at {int},
    gone_at {int},
    created_by {text} NOT NULL,
    created_at {int} NOT NULL,
    updated_at {int} NOT NULL,
    CONSTRAINT volume_id PRIMARY KEY (id),
    CONSTRAINT volume_number UNIQUE (number),
    CONSTRAINT volume_live_name UNIQUE (project_id, live_name)
) {strict};
CREATE INDEX volume_by_project ON volume (project_id, created_at, id) WHERE gone_at IS NULL;
CREATE INDEX volume_alive ON volume (created_at, id) WHERE gone_at IS NULL;

CREATE TABLE attachment (
    id {text} NOT NULL,
    version {int} NOT NULL,
    volume_id {text} NOT NULL,
    cluster_id {text} NOT NULL,
    project_id {text} NOT NULL,
    mount_path {text} NOT NULL,
    read_only {bool} NOT NULL,
    dies_with_cluster {bool} NOT NULL,
    created_at {int} NOT NULL,
    CONSTRAINT attachment_id PRIMARY KEY (id),
    CONSTRAINT attachment_volume UNIQUE (volume_id, cluster_id),
    CONSTRAINT attachment_path UNIQUE (cluster_id, mount_path)
) {strict};

CREATE TABLE ssh_key (
    id {text} NOT NULL,
    version {int} NOT NULL,
    number {int} NOT NULL,
    account_id {text} NOT NULL,
    project_id {text} NOT NULL,
    member_id {text},
    name {text} NOT NULL,
    public_key {text} NOT NULL,
    fingerprint {text} NOT NULL,
    created_at {int} NOT NULL,
    CONSTRAINT ssh_key_id PRIMARY KEY (id),
    CONSTRAINT ssh_key_number UNIQUE (number),
    CONSTRAINT ssh_key_fingerprint UNIQUE (project_id, fingerprint)
) {strict};

CREATE TABLE security_group (
    id {text} NOT NULL,
    version {int} NOT NULL,
    number {int} NOT NULL,
    account_id {text} NOT NULL,
    project_id {text} NOT NULL,
    name {text} NOT NULL,
    created_at {int} NOT NULL,
    updated_at {int} NOT NULL,
    rules {text} NOT NULL,
    CONSTRAINT security_group_id PRIMARY KEY (id),
    CONSTRAINT security_group_number UNIQUE (number),
    CONSTRAINT security_group_name UNIQUE (project_id, name)
) {strict};

CREATE TABLE reserved_ip (
    id {text} NOT NULL,
    version {int} NOT NULL,
    number {int} NOT NULL,
    account_id {text} NOT NULL,
    project_id {text} NOT NULL,
    region {text} NOT NULL,
    address {text} NOT NULL,
    cluster_id {text},
    created_at {int} NOT NULL,
    CONSTRAINT reserved_ip_id PRIMARY KEY (id),
    CONSTRAINT reserved_ip_number UNIQUE (number),
    CONSTRAINT reserved_ip_address UNIQUE (region, address)
) {strict};
CREATE INDEX reserved_ip_by_project ON reserved_ip (project_id, created_at, id);

CREATE TABLE cluster (
    id {text} NOT NULL,
    version {int} NOT NULL,
    number {int} NOT NULL,
    account_id {text} NOT NULL,
    project_id {text} NOT NULL,
    name {text} NOT NULL,
    live_name {text},
    region {text} NOT NULL,
    phase {text} NOT NULL,
    phase_since {int} NOT NULL,
    because {text} NOT NULL,
    generation {int} NOT NULL,
    digest {text} NOT NULL,
    delete_wished_at {int},
    gone_at {int},
    created_by {text} NOT NULL,
    created_at {int} NOT NULL,
    updated_at {int} NOT NULL,
    spec {text} NOT NULL,
    status {text} NOT NULL,
    CONSTRAINT cluster_id PRIMARY KEY (id),
    CONSTRAINT cluster_number UNIQUE (number),
    CONSTRAINT cluster_live_name UNIQUE (project_id, live_name)
) {strict};
CREATE INDEX cluster_by_project ON cluster (project_id, created_at, id) WHERE gone_at IS NULL;
CREATE INDEX cluster_alive ON cluster (created_at, id) WHERE gone_at IS NULL;

CREATE TABLE node (
    id {text} NOT NULL,
    version {int} NOT NULL,
    cluster_id {text} NOT NULL,
    project_id {text} NOT NULL,
    role {text} NOT NULL,
    name {text} NOT NULL,
    ordinal {int} NOT NULL,
    generation {int} NOT NULL,
    host_id {text},
    host_name {text} NOT NULL,
    lease_id {text},
    phase {text} NOT NULL,
    phase_since {int} NOT NULL,
    because {text} NOT NULL,
    address {text} NOT NULL,
    created_at {int} NOT NULL,
    gone_at {int},
    history {text} NOT NULL,
    CONSTRAINT node_id PRIMARY KEY (id)
) {strict};
CREATE INDEX node_by_cluster ON node (cluster_id);

CREATE TABLE request (
    id {text} NOT NULL,
    version {int} NOT NULL,
    account_id {text} NOT NULL,
    project_id {text} NOT NULL,
    kind {text} NOT NULL,
    resource_id {text} NOT NULL,
    operation {text} NOT NULL,
    generation {int} NOT NULL,
    state {text} NOT NULL,
    message {text} NOT NULL,
    created_by {text} NOT NULL,
    created_at {int} NOT NULL,
    updated_at {int} NOT NULL,
    finished_at {int},
    CONSTRAINT request_id PRIMARY KEY (id)
) {strict};
CREATE INDEX request_by_resource ON request (resource_id, created_at, id);
CREATE INDEX request_by_project ON request (project_id, created_at, id);

CREATE TABLE idempotency_key (
    id {text} NOT NULL,
    version {int} NOT NULL,
    digest {text} NOT NULL,
    kind {text} NOT NULL,
    resource_id {text} NOT NULL,
    created_at {int} NOT NULL,
    CONSTRAINT idempotency_key_id PRIMARY KEY (id)
) {strict};
CREATE INDEX idempotency_key_by_age ON idempotency_key (created_at, id);

-- Each slot of each lease: the database itself refuses to grant a GPU twice.
CREATE TABLE lease_slot (
    host_id {text} NOT NULL,
    slot {int} NOT NULL,
    lease_id {text} NOT NULL,
    CONSTRAINT lease_slot_key PRIMARY KEY (host_id, slot)
) {clustered};

CREATE TABLE capacity_log (
    seq {serial},
    host_id {text} NOT NULL,
    taken {int} NOT NULL,
    freed {int} NOT NULL
) {strict};

CREATE TABLE event (
    seq {serial},
    at {int} NOT NULL,
    kind {text} NOT NULL,
    resource_id {text} NOT NULL,
    type {text} NOT NULL,
    account_id {text},
    project_id {text},
    actor {text} NOT NULL,
    cause {text} NOT NULL,
    message {text} NOT NULL,
    data {text} NOT NULL
) {strict};
CREATE INDEX event_by_project ON event (project_id, seq);
CREATE INDEX event_by_resource ON event (resource_id, seq);

-- Work to be done: ready_at is due_at while nobody holds it (worker is null), else when the hold expires.
CREATE TABLE work (
    kind {text} NOT NULL,
    id {text} NOT NULL,
    due_at {int} NOT NULL,
    ready_at {int} NOT NULL,
    token {int} NOT NULL,
    wakes {int} NOT NULL,
    attempts {int} NOT NULL,
    worker {text},
    PRIMARY KEY (kind, id)
) {clustered};
CREATE INDEX work_ready ON work (ready_at, kind, id);

-- only: sqlite
-- The last number given to each noun, and the last claim token (noun 'claim').
CREATE TABLE counter (
    noun TEXT NOT NULL PRIMARY KEY,
    last INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- only: postgres
CREATE SEQUENCE claim_token;
CREATE SEQUENCE account_numbers;
CREATE SEQUENCE project_numbers;
CREATE SEQUENCE member_numbers;
CREATE SEQUENCE region_numbers;
CREATE SEQUENCE instance_type_numbers;
CREATE SEQUENCE image_numbers;
CREATE SEQUENCE price_numbers;
CREATE SEQUENCE volume_numbers;
CREATE SEQUENCE ssh_key_numbers;
CREATE SEQUENCE security_group_numbers;
CREATE SEQUENCE reserved_ip_numbers;
CREATE SEQUENCE cluster_numbers;

-- Applies a group of batches, each in its own subtransaction; answers one verdict for each ('' = applied).
-- One call is one transaction that the server ends by itself: a client that freezes holds no lock.
-- The advisory lock makes writers take turns, so that logs are numbered in commit order and nothing deadlocks.
CREATE FUNCTION muster_apply(batches jsonb) RETURNS text[] LANGUAGE plpgsql AS $$
DECLARE
    batch jsonb;
    op jsonb;
    touched bigint;
    rule text;
    verdicts text[] := '{}';
BEGIN
    PERFORM pg_advisory_xact_lock(hashtext('muster.writer'));
    FOR batch IN SELECT value FROM jsonb_array_elements(batches) LOOP
        BEGIN
            FOR op IN SELECT value FROM jsonb_array_elements(batch) LOOP
                EXECUTE op ->> 'sql' USING op -> 'args';
                GET DIAGNOSTICS touched = ROW_COUNT;
                IF touched <> (op ->> 'rows')::bigint THEN
                    RAISE EXCEPTION USING ERRCODE = 'MU001', MESSAGE = op ->> 'refusal';
                END IF;
            END LOOP;
            verdicts := verdicts || ''::text;
        EXCEPTION
            WHEN unique_violation THEN
                GET STACKED DIAGNOSTICS rule = CONSTRAINT_NAME;
                verdicts := verdicts || ('unique ' || rule);
            WHEN SQLSTATE 'MU001' THEN
                verdicts := verdicts || SQLERRM;
        END;
    END LOOP;
    RETURN verdicts;
END $$;
