"""Sorting the tasks of a very large graph, if they can be sorted, with GraphBLAS.

    culling, breadth first      a tree: each task        times: depth first       corrected until each task
    from the wanted tasks   ──▶ below its first user ──▶ through the tree     ──▶ comes after all its needs

Rules:
- The graph is a matrix with an entry for each need; a property of all tasks is a vector. Tasks that no step reaches are
  culled.
- The order is close to depth first, so that results are used up soon. If a task needs another one that is elsewhere in
  the tree and comes later, it is moved behind that: times := max(times, needs max.+ times), until nothing changes.
- With a cycle this never converges. So there is no order from here if there is a cycle, or if too many steps are
  needed: then sorting one task after the other is faster, and can name the cycle.
- One thread, whatever the process has set: OpenMP threads do not survive a fork, and worker processes fork.
- Only kernels that the library contains: it would compile others, and store them in the user's home.
"""

from __future__ import annotations

import threading
from importlib import import_module
from importlib.util import find_spec
from typing import Any, List, Optional, Sequence, Tuple

from scaler.graph.graph_columns import Vector

FEWEST_TASKS_PER_LEVEL = 2000
"""On average; with fewer, sorting one task after the other costs less than one step for all at once."""
MOST_CORRECTIONS = 4
"""With more tasks out of order, some dozen more corrections are needed, as measured, which costs more than sorting."""

_starting = threading.Lock()


class _GraphBlasError(Exception):
    pass


def is_installed() -> bool:
    """Whether GraphBLAS seems to be installed; imports nothing."""
    return find_spec("suitesparse_graphblas") is not None and find_spec("numpy") is not None


def load() -> bool:
    """Import GraphBLAS; returns whether it works."""
    try:
        graphblas = import_module("suitesparse_graphblas")
        with _starting:
            if not graphblas.is_initialized():
                graphblas.initialize()  # as python-graphblas does, which the program may also use
    except Exception:  # another version, or not for this machine; the graph can be sorted without it
        return False
    return True


def order_of(starts: Vector, needs: Vector, roots: Sequence[int]) -> Optional[Vector]:
    """Numbers of all tasks that `roots` need, each after its needs; None if the caller must sort another way.

    `load` must have succeeded.

    Parameters:
        starts: where a task's needs start in `needs`; one entry more than there are tasks.
        needs: numbers of tasks, without duplicates for each task that needs them.
        roots: numbers of tasks, without duplicates.
    """
    np = import_module("numpy")
    try:
        with _Session(np, starts, needs) as session:
            levels = _levels(np, session, roots)
            if levels is None:
                return None
            members = np.concatenate([numbers for numbers, _ in levels])
            return _corrected(np, session, members, _depth_first(np, levels))
    except _GraphBlasError:  # out of memory, for example: the other way needs less
        return None


def _levels(np: Any, session: _Session, roots: Sequence[int]) -> Optional[List[Tuple[Vector, Vector]]]:
    """The tasks reached after no step, after one, and so on: numbers, and the positions of the tasks they were reached
    from.

    Positions count through all levels. Tasks that were reached from the same task are adjacent, in the order in which
    it names them.
    """
    numbers = np.array(roots, dtype="int64")
    levels = [(numbers, np.zeros(len(numbers), dtype="int64"))]
    place_count = len(session.needs)
    matrix = session.matrix(np.arange(place_count, dtype="int64"))  # entries are places in `needs`
    visited = session.vector(np.sort(numbers), np.ones(len(numbers), dtype="int64"))
    met = 0
    while True:
        # Each task is reached from the first task that needs it, at its first place there: the minimum of such sums.
        by_number = np.argsort(numbers)
        frontier = session.vector(numbers[by_number], (met + by_number) * place_count)
        met += len(numbers)
        session.step(frontier, visited, matrix)
        numbers, sums = session.entries(frontier)
        if not len(numbers):
            return levels
        if len(levels) * FEWEST_TASKS_PER_LEVEL > session.count:
            return None
        order = np.argsort(sums)
        numbers = numbers[order]
        levels.append((numbers, sums[order] // place_count))


def _depth_first(np: Any, levels: List[Tuple[Vector, Vector]]) -> Vector:
    """The finishing time of each task, if it needed only the tasks reached from it: 0, 1, 2, … by position."""
    ends = np.cumsum([0] + [len(numbers) for numbers, _ in levels]).tolist()
    sizes = np.ones(ends[-1], dtype="int64")  # of the subtree of each, including itself
    for level in range(len(levels) - 1, 0, -1):
        start, middle, end = ends[level - 1 : level + 2]
        met_from = levels[level][1] - start
        sizes[start:middle] += np.bincount(met_from, sizes[middle:end], middle - start).astype("int64")
    times = np.empty(len(sizes), dtype="int64")
    begins = np.zeros(1, dtype="int64")  # the first finishing time in the subtree of each task of the level above
    for level, (_, met_from) in enumerate(levels):
        start, end = ends[level], ends[level + 1]
        before = np.cumsum(sizes[start:end]) - sizes[start:end]  # the sizes of the subtrees to the left
        shares = np.zeros(end - start, dtype=bool)
        shares[1:] = met_from[1:] == met_from[:-1]
        before -= np.maximum.accumulate(np.where(shares, 0, before))
        begins = begins[met_from - ends[max(level - 1, 0)]] + before
        times[start:end] = begins + sizes[start:end] - 1
    return times


def _corrected(np: Any, session: _Session, members: Vector, times: Vector) -> Optional[Vector]:
    """`members` in the order of their times, after moving tasks behind their needs."""
    by_number = np.full(session.count, -1, dtype="int64")
    by_number[members] = times
    numbers = np.flatnonzero(by_number >= 0)
    before = by_number[numbers]
    needed, vector = session.vector(numbers, before), session.vector(numbers, before)
    matrix = session.matrix(np.ones(len(session.needs), dtype="int64"))
    for correction in range(MOST_CORRECTIONS + 1):
        session.move(vector, needed, matrix)
        _, after = session.entries(vector)
        if (after == before).all():
            if correction:
                return numbers[np.argsort(after, kind="stable")]
            order = np.empty(len(members), dtype="int64")
            order[times] = members
            return order
        before = after
    return None


class _Session:
    """One graph, as matrices for GraphBLAS. Its objects are freed with their last reference."""

    def __init__(self, np: Any, starts: Vector, needs: Vector) -> None:
        graphblas = import_module("suitesparse_graphblas")
        self._np, self._ffi, self._lib = np, graphblas.ffi, graphblas.lib
        self.count = len(starts) - 1
        self.starts, self.needs = starts.astype("uint64"), needs.astype("uint64")

    def __enter__(self) -> _Session:
        context = self._new("GxB_Context*", self._lib.GxB_Context_free)
        self._call(self._lib.GxB_Context_new, context)
        self._call(self._lib.GxB_Context_set_INT32, context[0], self._lib.GxB_CONTEXT_NTHREADS, 1)
        self._call(self._lib.GxB_Context_engage, context[0])  # for calls from this thread
        self._context = context
        return self

    def __exit__(self, *_: object) -> None:
        self._lib.GxB_Context_disengage(self._context[0])

    def matrix(self, entries: Vector) -> Any:
        """The matrix of needs: an entry for each of `needs`."""
        lib = self._lib
        matrix = self._new("GrB_Matrix*", lib.GrB_Matrix_free)
        columns = (self._indices(self.starts), self._indices(self.needs), self._values(entries))
        sizes = (len(self.starts), len(self.needs), len(entries))
        what = (lib.GrB_INT64, self.count, self.count, *columns, *sizes, lib.GrB_CSR_FORMAT)
        self._call(lib.GrB_Matrix_import_INT64, matrix, *what)
        return matrix

    def vector(self, numbers: Vector, values: Vector) -> Any:
        """Values of tasks, by ascending numbers."""
        lib = self._lib
        vector = self._new("GrB_Vector*", lib.GrB_Vector_free)
        self._call(lib.GrB_Vector_new, vector, lib.GrB_INT64, self.count)
        what = (self._indices(numbers), self._values(values), len(numbers), lib.GrB_PLUS_INT64)
        self._call(lib.GrB_Vector_build_INT64, vector[0], *what)
        return vector

    def entries(self, vector: Any) -> Tuple[Vector, Vector]:
        """Numbers, ascending, and values."""
        count = self._ffi.new("GrB_Index*")
        self._call(self._lib.GrB_Vector_nvals, count, vector[0])
        numbers, values = self._np.empty(count[0], dtype="int64"), self._np.empty(count[0], dtype="int64")
        pointers = (self._indices(numbers), self._values(values))
        self._call(self._lib.GrB_Vector_extractTuples_INT64, *pointers, count, vector[0])
        return numbers, values

    def step(self, frontier: Any, visited: Any, matrix: Any) -> None:
        """Replace the frontier by its unvisited needs, each with the lowest sum that leads there."""
        lib, null = self._lib, self._ffi.NULL
        how = (null, lib.GrB_MIN_PLUS_SEMIRING_INT64, frontier[0], matrix[0], lib.GrB_DESC_RSC)
        self._call(lib.GrB_vxm, frontier[0], visited[0], *how)
        self._call(
            lib.GrB_Vector_assign_INT64, visited[0], frontier[0], null, 1, lib.GrB_ALL, self.count, lib.GrB_DESC_S
        )

    def move(self, times: Any, needed: Any, matrix: Any) -> None:
        """Move each task that is needed to a time after its last need, unless it is later already."""
        lib = self._lib
        how = (lib.GrB_MAX_INT64, lib.GrB_MAX_PLUS_SEMIRING_INT64, matrix[0], times[0], lib.GrB_DESC_S)
        self._call(lib.GrB_mxv, times[0], needed[0], *how)

    def _indices(self, numbers: Vector) -> Any:
        return self._ffi.from_buffer("GrB_Index[]", numbers)

    def _values(self, values: Vector) -> Any:
        return self._ffi.from_buffer("int64_t[]", values)

    def _new(self, kind: str, free: Any) -> Any:
        return self._ffi.gc(self._ffi.new(kind), free)

    def _call(self, function: Any, *arguments: Any) -> None:
        status = function(*arguments)
        if status != self._lib.GrB_SUCCESS:
            raise _GraphBlasError(f"GraphBLAS returned {status}")
