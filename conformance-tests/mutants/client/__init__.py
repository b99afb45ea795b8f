"""The reference client, in parts, and clients that are each wrong in one way."""
