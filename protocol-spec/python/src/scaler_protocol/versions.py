"""What this package speaks: one major version of the protocol, a range of minors.

Rules: constants alone. Two sides take the highest minor they share (SCL-SES-004).
"""

from __future__ import annotations

PROTOCOL_MAJOR = 1
PROTOCOL_MINOR_MIN = 0
PROTOCOL_MINOR_MAX = 0
