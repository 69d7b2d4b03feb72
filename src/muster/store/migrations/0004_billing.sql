-- Money: usage intervals, the ledger, the books it adds up to, contracts and budgets.

CREATE TABLE usage (
    id {text} NOT NULL,
    version {int} NOT NULL,
    account_id {text} NOT NULL,
    project_id {text} NOT NULL,
    kind {text} NOT NULL,
    resource_id {text} NOT NULL,
    resource_name {text} NOT NULL,
    item {text} NOT NULL,
    region {text} NOT NULL,
    billing {text} NOT NULL,
    usage_class {text} NOT NULL,
    quantity {int} NOT NULL,
    opened_at {int} NOT NULL,
    closed_at {int},
    open_key {text},
    booked_until {int} NOT NULL,
    booked_micro {int} NOT NULL,
    bookings {int} NOT NULL,
    CONSTRAINT usage_id PRIMARY KEY (id),
    CONSTRAINT usage_open UNIQUE (open_key),
    CONSTRAINT usage_forwards CHECK (closed_at IS NULL OR closed_at >= opened_at),
    CONSTRAINT usage_open_or_closed CHECK ((open_key IS NULL) = (closed_at IS NOT NULL))
) {strict};
CREATE INDEX usage_by_resource ON usage (resource_id, opened_at, id);
CREATE INDEX usage_open_by_account ON usage (account_id, opened_at, id) WHERE closed_at IS NULL;

-- Both legs in one row: what leaves one book enters another, or nothing is written at all.
CREATE TABLE ledger_entry (
    id {text} NOT NULL,
    version {int} NOT NULL,
    account_id {text} NOT NULL,
    project_id {text},
    kind {text} NOT NULL,
    debit {text} NOT NULL,
    credit {text} NOT NULL,
    micro {int} NOT NULL,
    at {int} NOT NULL,
    since {int},
    usage_id {text},
    resource_id {text},
    resource_name {text} NOT NULL,
    item {text} NOT NULL,
    quantity {int} NOT NULL,
    price_micro {int} NOT NULL,
    memo {text} NOT NULL,
    booked_by {text} NOT NULL,
    created_at {int} NOT NULL,
    CONSTRAINT ledger_entry_id PRIMARY KEY (id),
    CONSTRAINT ledger_entry_positive CHECK (micro > 0),
    CONSTRAINT ledger_entry_two_books CHECK (debit <> credit)
) {strict};
CREATE INDEX ledger_entry_by_account ON ledger_entry (account_id, at, id);
CREATE INDEX ledger_entry_by_project ON ledger_entry (project_id, at, id);
CREATE INDEX ledger_entry_by_resource ON ledger_entry (resource_id, at, id);

CREATE TABLE book (
    id {text} NOT NULL,
    version {int} NOT NULL,
    micro {int} NOT NULL,
    CONSTRAINT book_id PRIMARY KEY (id)
) {strict};

CREATE TABLE contract (
    id {text} NOT NULL,
    version {int} NOT NULL,
    account_id {text} NOT NULL,
    project_id {text} NOT NULL,
    resource_id {text} NOT NULL,
    micro {int} NOT NULL,
    starts_at {int} NOT NULL,
    ends_at {int} NOT NULL,
    memo {text} NOT NULL,
    created_at {int} NOT NULL,
    CONSTRAINT contract_id PRIMARY KEY (id)
) {strict};
CREATE INDEX contract_by_project ON contract (project_id, created_at, id);

CREATE TABLE budget (
    id {text} NOT NULL,
    version {int} NOT NULL,
    account_id {text} NOT NULL,
    project_id {text} NOT NULL,
    monthly_micro {int} NOT NULL,
    created_at {int} NOT NULL,
    updated_at {int} NOT NULL,
    CONSTRAINT budget_id PRIMARY KEY (id)
) {strict};

CREATE TABLE funding (
    id {text} NOT NULL,
    version {int} NOT NULL,
    account_id {text} NOT NULL,
    state {text} NOT NULL,
    since {int} NOT NULL,
    minute_micro {int} NOT NULL,
    CONSTRAINT funding_id PRIMARY KEY (id)
) {strict};

ALTER TABLE volume ADD COLUMN unfunded_since {int};

-- The sums are the database's own: nobody can write an entry without them, and no entry is ever changed or removed.
-- only: sqlite
CREATE TRIGGER ledger_entry_adds_up AFTER INSERT ON ledger_entry BEGIN
    INSERT INTO book (id, version, micro) VALUES (NEW.debit, 1, -NEW.micro)
        ON CONFLICT (id) DO UPDATE SET version = version + 1, micro = micro - NEW.micro;
    INSERT INTO book (id, version, micro) VALUES (NEW.credit, 1, NEW.micro)
        ON CONFLICT (id) DO UPDATE SET version = version + 1, micro = micro + NEW.micro;
END;
CREATE TRIGGER ledger_entry_never_changes BEFORE UPDATE ON ledger_entry BEGIN
    SELECT RAISE(ABORT, 'the ledger is only ever added to');
END;
CREATE TRIGGER ledger_entry_never_goes BEFORE DELETE ON ledger_entry BEGIN
    SELECT RAISE(ABORT, 'the ledger is only ever added to');
END;

-- only: postgres
CREATE FUNCTION ledger_adds_up() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO book (id, version, micro) VALUES (NEW.debit, 1, -NEW.micro)
        ON CONFLICT (id) DO UPDATE SET version = book.version + 1, micro = book.micro - NEW.micro;
    INSERT INTO book (id, version, micro) VALUES (NEW.credit, 1, NEW.micro)
        ON CONFLICT (id) DO UPDATE SET version = book.version + 1, micro = book.micro + NEW.micro;
    RETURN NULL;
END $$;
CREATE FUNCTION ledger_is_kept() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'the ledger is only ever added to';
END $$;
CREATE TRIGGER ledger_entry_adds_up AFTER INSERT ON ledger_entry FOR EACH ROW EXECUTE FUNCTION ledger_adds_up();
CREATE TRIGGER ledger_entry_never_changes BEFORE UPDATE OR DELETE ON ledger_entry
    FOR EACH ROW EXECUTE FUNCTION ledger_is_kept();
