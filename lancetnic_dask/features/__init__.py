"""Partitions -> token shards -> vocabulary and weights -> shard groups."""
