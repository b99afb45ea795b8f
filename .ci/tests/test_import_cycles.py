"""Imports go one way only, and folders stay small enough to be read.

Rules:
- A circle is a set of modules each of which imports, directly or through others, every other one. Imports inside
  functions and below `if TYPE_CHECKING` count: what needs another module to be understood depends on it.
- That a package's `__init__` runs before its modules is no import: only what a source says counts.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Dict, List, Set

import pytest
from test_import_arrows import PACKAGES, TREE, Sources

MOST_MODULES = 20
FOLDERS = [
    *(folder / package for package, folder in PACKAGES.items()),
    TREE / "appliance/tests",
    TREE / "conformance-tests/tests",
    TREE / "protocol-spec/python/tests",
    TREE / "sdk/tests",
]


def modules_in_circles(sources: Sources) -> Set[str]:
    """All modules that import themselves by way of others."""
    imported = {
        module: {found.imported for found in sources.imports_of(module) if found.imported in sources.trees} - {module}
        for module in sources.trees
    }
    return {module for circle in strongly_connected(imported) if len(circle) > 1 for module in circle}


def strongly_connected(edges: Dict[str, Set[str]]) -> List[Set[str]]:
    """Tarjan's algorithm, with a stack of its own instead of recursion."""
    index: Dict[str, int] = {}
    lowest: Dict[str, int] = {}
    path: List[str] = []
    components: List[Set[str]] = []
    done: Set[str] = set()
    for start in edges:
        if start in index:
            continue
        index[start] = lowest[start] = len(index)
        path.append(start)
        stack = [(start, iter(sorted(edges[start])))]
        while stack:
            node, following = stack[-1]
            for each in following:
                if each not in index:
                    index[each] = lowest[each] = len(index)
                    path.append(each)
                    stack.append((each, iter(sorted(edges[each]))))
                    break
                if each not in done:
                    lowest[node] = min(lowest[node], index[each])
            else:
                stack.pop()
                if stack:
                    lowest[stack[-1][0]] = min(lowest[stack[-1][0]], lowest[node])
                if lowest[node] == index[node]:
                    place = path.index(node)
                    components.append(set(path[place:]))
                    done.update(path[place:])
                    del path[place:]
    return components


def large_folders(folders: List[Path]) -> Dict[str, int]:
    """Folders with more than MOST_MODULES modules, `__init__` not counted, and how many they have."""
    counts = Counter(
        path.parent
        for folder in folders
        for path in folder.rglob("*.py")
        if path.name != "__init__.py" and not any(part.startswith((".", "node_modules")) for part in path.parts)
    )
    return {str(folder): count for folder, count in counts.items() if count > MOST_MODULES}


@pytest.fixture(scope="module")
def circles() -> Set[str]:
    return modules_in_circles(Sources.of_tree())


def test_no_modules_import_each_other_in_circles(circles: Set[str]) -> None:
    assert sorted(circles) == []


def test_folders_are_small() -> None:
    found = {str(Path(folder).relative_to(TREE)): count for folder, count in large_folders(FOLDERS).items()}
    assert found == {}, "split them"


# The checks find what they look for.


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("import scaler.b", "from scaler.a import A"),
        ("from scaler import b", "def f():\n    from scaler.a import A"),
        ("from scaler.b import B", "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from scaler.a import A"),
        ("from scaler.c import C", "from scaler.a import A"),
    ],
)
def test_a_circle_is_found(first: str, second: str) -> None:
    texts = {"scaler.a": first, "scaler.b": second, "scaler.c": "from scaler.b import B", "scaler.d": first}
    assert {"scaler.a", "scaler.b"} <= modules_in_circles(Sources(texts)) <= {"scaler.a", "scaler.b", "scaler.c"}


def test_what_only_goes_down_is_no_circle() -> None:
    texts = {
        "scaler": "",
        "scaler.a": "from scaler import b\nfrom scaler.c import C",
        "scaler.b": "from scaler.c import C",
        "scaler.c": "import os",
    }
    assert modules_in_circles(Sources(texts)) == set()


def test_a_large_folder_is_found(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    for number in range(MOST_MODULES + 1):
        (tmp_path / "a" / f"m{number}.py").touch()
    (tmp_path / "__init__.py").touch()
    assert large_folders([tmp_path]) == {str(tmp_path / "a"): MOST_MODULES + 1}
