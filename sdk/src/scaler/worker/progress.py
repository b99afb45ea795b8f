"""A processor's entry in the progress page: 64 bits, which only the processor writes.

    [ FINISHED bit | LOADING bit | position of the task that started last ]

Rules:
- The FINISHED bit says that the task at the position has ended: if the processor dies later, that task is not the
  cause.
- The LOADING bit says that the function of the task at the position is being loaded, which runs user code: if the
  processor dies, that task is the cause, but its time limit has not begun.
"""

from __future__ import annotations

MAXIMUM_PROCESSORS = 8192
"""How many processors, including waiting ones, one worker can have at a time."""

FINISHED = 1 << 63
LOADING = 1 << 62
