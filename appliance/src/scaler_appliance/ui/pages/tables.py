"""Tables: sorted, filtered and cut to the shown rows.

Rules:
- Only shown rows are built; for the others, only the sorted and filtered columns are read.
- Equal rows keep their order, so that a page does not flicker; those without a value come last.
"""

from __future__ import annotations

from typing import Any, Callable, Dict, Generic, Iterable, List, Mapping, TypeVar

from scaler_appliance.ui.pages.queries import Query, QueryError, one_of

DEFAULT_LIMIT = 100
MAXIMUM_LIMIT = 1000


class BigNumber(str):
    """A number of 64 bits: a text in JSON, where numbers have 53, but sorted as a number."""


Entity = TypeVar("Entity")
Body = Dict[str, Any]


class EntityTable(Generic[Entity]):
    """The table of one kind of entity.

    Parameters:
        columns: of a row, by name, in order. A value is a number, a text, None, or something that cannot be sorted.
        default_sort: a column's name, with a leading `-` for the largest first.
        texts: columns that a filter searches.
    """

    def __init__(self, columns: Mapping[str, Callable[[Entity], Any]], default_sort: str, texts: Iterable[str]) -> None:
        self._columns = columns
        self._default_sort = default_sort
        self._texts = [columns[name] for name in texts]

    def body(self, entities: Iterable[Entity], query: Query) -> Body:
        """The shown part of the table, by the query's `sort`, `filter`, `offset` and `limit`.

        Raises QueryError.
        """
        everything = list(entities)
        words = query.words("filter")
        matching = [entity for entity in everything if self._has(entity, words)] if words else everything
        sort = query.text("sort") or self._default_sort
        matching = self._sorted(matching, sort)
        offset = query.whole("offset", 0)
        limit = query.whole("limit", DEFAULT_LIMIT, 1, MAXIMUM_LIMIT)
        return {
            "rows": [self.row(entity) for entity in matching[offset : offset + limit]],
            "total": len(everything),
            "matching": len(matching),
            "offset": offset,
            "limit": limit,
            "sort": sort,
        }

    def row(self, entity: Entity) -> Dict[str, Any]:
        return {name: value_of(entity) for name, value_of in self._columns.items()}

    def _has(self, entity: Entity, words: List[str]) -> bool:
        text = "\n".join([str(value_of(entity)) for value_of in self._texts]).casefold()
        return all(word in text for word in words)

    def _sorted(self, entities: List[Entity], sort: str) -> List[Entity]:
        is_descending = sort.startswith("-")
        value_of = self._columns[one_of("sort", sort[is_descending:], self._columns)]

        def key(entity: Entity) -> Any:
            value = value_of(entity)
            if isinstance(value, str):
                return int(value) if isinstance(value, BigNumber) else value.casefold()
            return value

        known = [entity for entity in entities if value_of(entity) is not None]
        try:
            known.sort(key=key, reverse=is_descending)
        except TypeError:
            raise QueryError(f"sort: the table cannot be sorted by {sort!r}") from None
        return known + [entity for entity in entities if value_of(entity) is None]
