"""One word for each thing: no word that was replaced comes back, and the glossary has all public terms.

Rules: see `.ci/words.py` for the words.
"""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from types import ModuleType
from typing import Callable, Set

import pytest

tomllib = pytest.importorskip("tomllib", reason="Python before 3.11 cannot read TOML")

TREE = Path(__file__).resolve().parents[2]
GLOSSARY = TREE / "docs/concepts/glossary.md"
SCHEMA = TREE / "protocol-spec/schema/common.capnp"
MACHINES = TREE / "protocol-spec/machines"
MOST_TERMS = 35


def load_words() -> ModuleType:
    specification = importlib.util.spec_from_file_location("words", TREE / ".ci/words.py")
    assert specification is not None and specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


words = load_words()


def explained() -> Set[str]:
    """The terms of the glossary: what is bold or code there."""
    found = re.findall(r"\*\*([^*]+)\*\*|`([^`]+)`", GLOSSARY.read_text(encoding="utf-8"))
    return {bold or code for bold, code in found}


def exported_names() -> Set[str]:
    import scaler

    return {name for name in scaler.__all__ if not name.startswith("_")}


def states_of_machines() -> Set[str]:
    return {
        state for path in MACHINES.glob("*.toml") for state in tomllib.loads(path.read_text(encoding="utf-8"))["states"]
    }


def roles() -> Set[str]:
    body = re.search(r"enum Role \{(.*?)\}", SCHEMA.read_text(encoding="utf-8"), re.DOTALL)
    assert body is not None
    return set(re.findall(r"(\w+) @\d+;", body[1]))


def test_no_replaced_word_comes_back() -> None:
    found = [str(each) for words_found in words.found_in_tree().values() for each in words_found]

    assert found == [], "these words are replaced: see .ci/words.py"


@pytest.mark.parametrize("public", [exported_names, states_of_machines, roles], ids=lambda each: each.__name__)
def test_the_glossary_has_each_public_term(public: Callable[[], Set[str]]) -> None:
    terms = public()

    assert len(terms) >= 4
    assert sorted(terms - explained()) == [], "explain these terms in docs/concepts/glossary.md"


def test_the_glossary_is_short() -> None:
    terms = re.findall(r"^\| \*\*([^*]+)\*\* \|", GLOSSARY.read_text(encoding="utf-8"), re.MULTILINE)

    assert 20 <= len(set(terms)) == len(terms) <= MOST_TERMS


@pytest.mark.parametrize(
    "text",
    [
        "class NurseryHandle:",
        "self._nursery = None",
        "its nurseries",
        "Nobody waits for it.",
        "while nobody_waits",
        "def on_message_of_stranger(self):",
        "FedDoom",
        "it takes his place",
        "the tallies of functions",
        "when a user looks on",
        "class LetsAnybodyIn:",
        "what became of it",
        "- It is started anew.",
        "done_now_and_then",
    ],
)
def test_a_replaced_word_is_found(text: str) -> None:
    assert [each.line for each in words.words_in("sdk/src/scaler/a.py", f"\n{text}\n")] == [2]


@pytest.mark.parametrize(
    "text", ["this, historical", "a chimney", "strangeness", "metallic", "Shortcuts: [q] quit", "-his 2", "a new one"]
)
def test_another_word_is_not(text: str) -> None:
    assert list(words.words_in("appliance/src/scaler_appliance/top/a.py", text)) == []
