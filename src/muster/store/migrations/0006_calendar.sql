-- Capacity in time: lines of the calendar, bookings and the cells they fill, reservations; the known end of a lease.

CREATE TABLE calendar_line (
    id {text} NOT NULL,
    version {int} NOT NULL,
    region {text} NOT NULL,
    gpu_type {text} NOT NULL,
    slots {int} NOT NULL,
    share_percent {int} NOT NULL,
    spares {int},
    reservable {int} NOT NULL,
    revision {int} NOT NULL,
    guarded {bool} NOT NULL,
    created_at {int} NOT NULL,
    CONSTRAINT calendar_line_id PRIMARY KEY (id)
) {strict};

CREATE TABLE booking (
    id {text} NOT NULL,
    version {int} NOT NULL,
    line_id {text} NOT NULL,
    reservation_id {text} NOT NULL,
    hosts {int} NOT NULL,
    from_at {int} NOT NULL,
    until_at {int} NOT NULL,
    bound {bool} NOT NULL,
    CONSTRAINT booking_id PRIMARY KEY (id)
) {strict};
CREATE INDEX booking_by_line ON booking (line_id, id);

-- Each hour of each booking: the database itself refuses to promise more than is reservable.
CREATE TABLE calendar_cell (
    line_id {text} NOT NULL,
    at {int} NOT NULL,
    used {int} NOT NULL,
    CONSTRAINT calendar_cell_key PRIMARY KEY (line_id, at)
) {clustered};

CREATE TABLE reservation (
    id {text} NOT NULL,
    version {int} NOT NULL,
    account_id {text} NOT NULL,
    project_id {text} NOT NULL,
    kind {text} NOT NULL,
    state {text} NOT NULL,
    open {bool} NOT NULL,
    region {text} NOT NULL,
    gpu_type {text} NOT NULL,
    gpus_per_node {int} NOT NULL,
    gpus {int} NOT NULL,
    hosts {int} NOT NULL,
    line_id {text} NOT NULL,
    booking_id {text} NOT NULL,
    cluster_id {text},
    starts_at {int} NOT NULL,
    ends_at {int} NOT NULL,
    expires_at {int},
    price_micro {int},
    currency {text} NOT NULL,
    because {text} NOT NULL,
    created_by {text} NOT NULL,
    created_at {int} NOT NULL,
    updated_at {int} NOT NULL,
    CONSTRAINT reservation_id PRIMARY KEY (id),
    CONSTRAINT reservation_cluster UNIQUE (cluster_id)
) {strict};
CREATE INDEX reservation_by_project ON reservation (project_id, created_at, id);
CREATE INDEX reservation_open ON reservation (open, created_at, id);

ALTER TABLE lease ADD COLUMN ends_at {int};
ALTER TABLE capacity_log ADD COLUMN ends_at {int};
CREATE INDEX lease_by_end ON lease (ends_at, id) WHERE ends_at IS NOT NULL;
