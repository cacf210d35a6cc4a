"""Shard groups -> batches -> a trained model, epoch by epoch."""
