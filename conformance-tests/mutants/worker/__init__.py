"""The reference worker, in parts, and workers that are each wrong in one way."""
