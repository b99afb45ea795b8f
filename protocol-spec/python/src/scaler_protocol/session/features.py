"""The names of features: what two sides may do if both list them."""

from __future__ import annotations

PREDECESSORS = "predecessors"
"""Tasks may depend on the results of earlier tasks."""

KEPT_RESULTS = "keptResults"
"""Workers keep large results until no task needs them."""

PEER_FETCH = "peerFetch"
"""Workers fetch objects from one another."""

KEPT_ARGUMENTS = "keptArguments"
"""A client keeps its large objects, and workers fetch them from it."""

DRAIN_REQUESTS = "drainRequests"
"""A worker may ask to be drained: the scheduler sends it no more tasks, and it leaves when it has finished its own."""

PROVISIONING = "provisioning"
"""A client starts and stops workers: it is sent what tasks could use, says what it starts, and releases idle units."""

RESUME = "resume"
"""A session can be resumed on another connection, by its token: both ends keep what the other has not acknowledged."""
