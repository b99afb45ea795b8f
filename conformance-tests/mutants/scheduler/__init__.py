"""The reference scheduler, in parts, and schedulers that are each wrong in one way."""
