"""The run folder: models, metrics, what was run and on what."""
