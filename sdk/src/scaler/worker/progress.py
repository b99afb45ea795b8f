"""What a processor's entry of the progress page says: 64 bits, which the processor writes and all others read.

    [ FINISHED bit | LOADING bit | position of the task that started last ]

Rules:
- The FINISHED bit says that the task at the position has ended: what a processor dies of later is not its
  fault.
- The LOADING bit says that the function of the task at the position is being loaded, which runs user code: what the
  processor dies of is the task's fault, but its time has not begun.
"""

from __future__ import annotations

MAXIMUM_PROCESSORS = 8192
"""How many processors, waiting ones included, one worker can have at a time."""

FINISHED = 1 << 63
LOADING = 1 << 62
