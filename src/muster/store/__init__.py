"""MEMORY: schema, SQLite, PostgreSQL, migrations. The only room that speaks SQL."""
