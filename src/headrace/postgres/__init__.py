"""The source: connections, what the catalog says, publications, slots, snapshots, lag, and preflight checks."""
