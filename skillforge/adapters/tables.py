"""The tables of a ledger, as migrations that bring an older file up to date."""

from __future__ import annotations

ABOUT = "coalesce(json_extract(data, '$.candidate'), json_extract(data, '$.subject'))"
"""What an event is about: a candidate, or else the version that a rollout stands for."""

MIGRATIONS: tuple[tuple[str, tuple[str, ...]], ...] = (
    (
        "0001_events_and_blobs",
        (
            """CREATE TABLE events (
                seq INTEGER PRIMARY KEY, at REAL NOT NULL, kind TEXT NOT NULL, run TEXT NOT NULL,
                data TEXT NOT NULL, previous TEXT NOT NULL, hash TEXT NOT NULL, key TEXT)""",
            "CREATE INDEX events_by_key ON events (key) WHERE key IS NOT NULL",
            "CREATE INDEX events_by_kind ON events (kind, seq)",
            "CREATE INDEX events_by_run ON events (run, kind, seq)",
            "CREATE TABLE blobs (hash TEXT PRIMARY KEY, data BLOB) WITHOUT ROWID",
            """CREATE TRIGGER events_keep BEFORE UPDATE ON events
                BEGIN SELECT RAISE(ABORT, 'events are append-only'); END""",
            """CREATE TRIGGER events_stay BEFORE DELETE ON events
                BEGIN SELECT RAISE(ABORT, 'events are append-only'); END""",
        ),
    ),
    (
        "0002_many_rollouts",
        (
            "ALTER TABLE blobs RENAME TO blobs_before",
            "CREATE TABLE blobs (id INTEGER PRIMARY KEY, hash TEXT NOT NULL UNIQUE, data BLOB)",
            "INSERT INTO blobs (hash, data) SELECT hash, data FROM blobs_before",
            "DROP TABLE blobs_before",
            """CREATE TABLE dictionaries (
                n INTEGER PRIMARY KEY, data BLOB NOT NULL, sampled INTEGER NOT NULL)""",
            f"CREATE INDEX events_by_about ON events ({ABOUT}, run, kind, seq)",
            """CREATE TABLE checkpoint (one INTEGER PRIMARY KEY CHECK (one = 1),
                seq INTEGER NOT NULL, digest TEXT NOT NULL, data BLOB NOT NULL)""",
        ),
    ),
    (
        "0003_samples",
        (
            """CREATE TABLE samples (blob INTEGER, dictionary INTEGER,
                PRIMARY KEY (blob, dictionary)) WITHOUT ROWID""",
            "INSERT INTO samples SELECT id, n FROM blobs JOIN dictionaries ON id <= sampled",
        ),
    ),
)
"""Name and statements; each is applied in one transaction together with its own record."""
