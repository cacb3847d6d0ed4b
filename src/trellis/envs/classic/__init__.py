"""Classic control tasks as NumPy batches."""
