"""Which parts of an object to request next while it is fetched in chunks.

    requests() ──▶ (0, chunk)                    the object's size is unknown until the first answer
    accept(0, ...) ─▶ requests() ──▶ up to `most_unanswered` requests without an answer, until everything is requested
    accept(...) ... ─▶ is_complete

Rules:
- Sans-IO: no message, socket or file. The caller sends requests, checks statuses and stores bytes.
- A scheduler may answer with fewer bytes than requested; the rest is requested again. A worker that holds an object may
  not: a byte an answer would keep a fetch going for ever.
- An answer that was not requested, or contradicts the object's size, is the peer's fault: MalformedMessageError.

Source: SCL-OBJ-009, SCL-OBJ-011.
"""

from __future__ import annotations

from typing import Dict, List, NamedTuple, Optional

from scaler_protocol.wire.errors import MalformedMessageError

FETCH_WINDOW_CHUNKS = 4
"""The usual maximum of unanswered requests for one object, so that a large object does not delay other messages."""


class PartRequest(NamedTuple):
    """
    Parameters:
        offset: where the part begins, in bytes.
        length: the maximum number of bytes.
    """

    offset: int
    length: int


class FetchWindow:
    """The progress of fetching one object.

    Parameters:
        chunk_bytes: how many bytes to request at once.
        size: of the object in bytes, if it is known.

    Attributes:
        most_unanswered: requests.
    """

    __slots__ = (
        "size", "received_bytes", "most_unanswered", "chunk_bytes", "_requested_bytes", "_unanswered", "_again"
    )  # fmt: skip

    def __init__(self, chunk_bytes: int, size: Optional[int] = None) -> None:
        self.size = size
        self.received_bytes = 0
        self.most_unanswered = FETCH_WINDOW_CHUNKS
        self.chunk_bytes = chunk_bytes
        self._requested_bytes = 0
        self._unanswered: Dict[int, int] = {}  # lengths of requests by their offsets
        self._again: List[PartRequest] = []  # parts that answers left out

    @property
    def is_complete(self) -> bool:
        return self.size is not None and self.received_bytes >= self.size and not self._unanswered

    def requests(self) -> List[PartRequest]:
        """The requests to send now; they count as sent."""
        found: List[PartRequest] = []
        if self.size is None:
            if not self._unanswered:
                found.append(PartRequest(0, self.chunk_bytes))
                self._unanswered[0] = self.chunk_bytes
            return found
        while len(self._unanswered) < self.most_unanswered:
            if self._again:
                request = self._again.pop(0)
            elif self._requested_bytes < self.size:
                request = PartRequest(self._requested_bytes, min(self.chunk_bytes, self.size - self._requested_bytes))
                self._requested_bytes += request.length
            else:
                break
            self._unanswered[request.offset] = request.length
            found.append(request)
        return found

    @property
    def unanswered(self) -> List[int]:
        """Offsets of requests that have not been answered yet."""
        return list(self._unanswered)

    def refuse(self, offset: int) -> None:
        """The answer to a request has arrived, without bytes of use."""
        self._unanswered.pop(offset, None)

    @property
    def has_unanswered(self) -> bool:
        """Whether a request has not been answered yet."""
        return bool(self._unanswered)

    def request_again(self) -> None:
        """Requests without an answer will get none: what they were for is requested again, from another peer."""
        self._again = sorted([*self._again, *(PartRequest(*each) for each in self._unanswered.items())])
        self._unanswered.clear()
        if self.size is None:
            self._again.clear()

    def accept(self, offset: int, length: int, size: int, is_exact: bool = False) -> None:
        """An answer has arrived.

        Parameters:
            offset: where its bytes begin.
            length: the number of bytes.
            size: of the whole object, according to the answer.
            is_exact: the peer has to send all bytes that were requested.

        Raises MalformedMessageError if it was not requested, or contradicts earlier answers.
        """
        requested = self._unanswered.get(offset)
        if requested is None or length > requested:
            raise MalformedMessageError(f"{length} bytes of an object from byte {offset} were not requested")
        if self.size is not None and size != self.size:
            raise MalformedMessageError(f"an object of {self.size} bytes cannot have {size} bytes")
        wanted = min(requested, size - offset)
        if length > wanted:
            raise MalformedMessageError(f"{length} bytes from byte {offset} exceed the object's size of {size} bytes")
        if not length and size:
            raise MalformedMessageError(f"the answer from byte {offset} of {size} has no bytes")
        if is_exact and length < wanted:
            raise MalformedMessageError(f"the answer from byte {offset} of {size} has {length} bytes, not {wanted}")
        if self.size is None:
            self.size = size
            self._requested_bytes = min(requested, size)
        del self._unanswered[offset]
        self.received_bytes += length
        if length < wanted:
            self._again.append(PartRequest(offset + length, wanted - length))
