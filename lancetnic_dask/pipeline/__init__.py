"""The stages of a run, put together."""
