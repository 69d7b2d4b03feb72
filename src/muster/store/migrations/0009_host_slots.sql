-- What all leases of a host hold, in one row: a grant is one guarded write, however many slots it has.

CREATE TABLE host_slots (
    host_id {text} NOT NULL,
    taken {int} NOT NULL,
    CONSTRAINT host_slots_key PRIMARY KEY (host_id)
) {clustered};
INSERT INTO host_slots (host_id, taken) SELECT host_id, sum(slots) FROM lease GROUP BY host_id;
DROP TABLE lease_slot;
