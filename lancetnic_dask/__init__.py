"""Train small text models on tables larger than memory."""
