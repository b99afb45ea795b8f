"""The protocol versions that this package supports: one major version, a range of minors.

Rules: constants only. Two peers use the highest minor they share (SCL-SES-004).
"""

from __future__ import annotations

PROTOCOL_MAJOR = 1
PROTOCOL_MINOR_MIN = 0
PROTOCOL_MINOR_MAX = 0
