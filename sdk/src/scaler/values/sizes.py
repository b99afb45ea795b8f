"""Sizes that decide how values travel."""

from __future__ import annotations

INLINE_BYTES = 64 * 1024
"""A payload of this size or more travels as an object."""
