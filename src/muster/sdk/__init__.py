"""A thin client of the native dialect. Knows no server package."""
