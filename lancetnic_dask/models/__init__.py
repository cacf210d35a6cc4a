"""Neural networks whose first layer reads sparse rows, and their optimizer."""
