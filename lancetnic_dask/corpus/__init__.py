"""Files and collections -> planned, record-aligned partitions."""
