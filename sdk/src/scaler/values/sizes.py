"""Sizes that decide how values travel."""

from __future__ import annotations

INLINE_BYTES = 64 * 1024
"""A payload of this size or more travels as an object."""

DIRECT_BYTES = 1024 * 1024
"""An argument of this size or more goes from its client to the worker, if the client serves workers."""
