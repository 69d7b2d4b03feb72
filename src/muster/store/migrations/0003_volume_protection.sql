-- Volumes may be protected from deletion, as clusters are.

ALTER TABLE volume ADD COLUMN deletion_protection {bool} NOT NULL DEFAULT FALSE;
