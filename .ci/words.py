"""Words and phrases that this project does not use, each with the one to use instead.

    python .ci/words.py            list the places that use a replaced word

Rules:
- `REPLACED` has private words, and phrases that readers stumbled over. They are searched in code (names, comments,
  docstrings, texts), documentation, logs, help and the protocol's prose. A test fails if one is found.
- To replace a word is not enough: read the sentence, and leave it as plain idiomatic English.
"""

from __future__ import annotations

import functools
import re
import sys
from pathlib import Path
from typing import Dict, Iterator, List, NamedTuple

TREE = Path(__file__).resolve().parents[1]

SUFFIXES = {".c", ".capnp", ".cpp", ".hpp", ".html", ".js", ".md", ".py", ".toml"}
SKIPPED_FOLDERS = {"__pycache__", "build", "dist", "node_modules", "results", "traces", "vectors"}
SKIPPED_FILES = {
    ".ci/words.py",
    ".ci/tests/test_words.py",
    ".ci/tests/test_plain_words.py",
    "CHANGELOG.md",  # history is not rewritten
}

_KEYS = r"appliance/(?:src/scaler_appliance|tests)/(?:top|ui|browser)|docs/monitoring"


class Replaced(NamedTuple):
    """A word or phrase, and what to say instead."""

    pattern: str  # in lower case; a first letter in upper case is found as well
    instead: str
    except_in: str = ""  # paths that begin like this may have it: there it means something else


REPLACED: List[Replaced] = [
    # Names
    Replaced(r"nurser(?:y|ies)", "fork server"),
    Replaced(r"speakers?(?![a-z])", "adversarial peer"),
    Replaced(r"bystanders?(?![a-z])", "control client"),
    Replaced(r"strangers?(?![a-z])", "unregistered peer"),
    Replaced(r"doom(?:s|ed)?(?![a-z])", "kill reason"),
    Replaced(r"shortcuts?(?![a-z])", "local socket", except_in=_KEYS),
    Replaced(r"crowded(?![a-z])", "over-committed"),
    Replaced(r"hungry(?![a-z])", "below its prefetch target"),
    Replaced(r"(?:lends|lending|lent)(?![a-z])", "blocked: its task waits for nested tasks"),
    Replaced(r"tall(?:y|ies)(?![a-z])", "counters"),
    Replaced(r"is_noted(?![a-z])", "dirty"),
    Replaced(r"lull(?:s|ed|ing)?(?![a-z])", "idle wait"),
    Replaced(r"disown(?:s|ed)?(?![a-z])", "after_fork_in_child"),
    Replaced(r"program_starting(?![a-z])", "program startup"),
    Replaced(r"program_logging(?![a-z])", "logging setup"),
    # Phrases
    Replaced(r"nobody(?![a-z])", "no one of those who could: name them, or say what happens"),
    Replaced(r"(?<!-)(?:his|him)(?![a-z])", "its, or the plural"),
    Replaced(r"is no amount", "must be finite and >= 0"),
    Replaced(r"looks? on(?![a-z])|looking on(?![a-z])", "subscribes, watches"),
    Replaced(r"stands? still", "hangs, is hung"),
    Replaced(r"deceives?(?![a-z])", "is ignored"),
    Replaced(r"goes? before (?:its|their) like", "runs before its siblings"),
    Replaced(r"gets? no new ones made", "is throttled"),
    Replaced(r"acknowledged to", "is not acknowledged"),
    Replaced(r"simulator bites|rules? bites?(?![a-z])", "mutation testing"),
    Replaced(r"whoever", "name it: a thread that, a peer that, users who"),
    Replaced(r"somebody", "name it: a monitor, another user, a caller"),
    Replaced(r"everybody", "name them: all peers, all users"),
    Replaced(r"anybody", "name it: any peer, any thread"),
    Replaced(r"in[ _]vain(?![a-z])", "times out, without a result"),
    Replaced(r"anew(?![a-z])", "again, or reload, restart, rewrite"),
    Replaced(r"look_on(?![a-z])|look_away(?![a-z])", "subscribe, unsubscribe"),
    Replaced(r"now[ _]and[ _]then(?![a-z])", "periodically, sometimes"),
    Replaced(r"(?:its|their|all)[ _]like(?![a-z])", "siblings, others of its kind"),
    Replaced(r"bec(?:omes?|ame)[ _]of(?![a-z])", "the outcome of, what happens to"),
    Replaced(r"(?:tells?|told)[ _]of(?![a-z])", "reports, publishes, announces"),
    Replaced(r"makes?[ _]no[ _]sense", "is malformed, invalid"),
    Replaced(r"(?:is|are|of)[ _]no[ _]interest", "is ignored, not needed"),
]

# A word begins where no letter precedes it, or with an upper-case letter after a lower-case one (as in FedWorker).
_PATTERNS: Dict[str, re.Pattern[str]] = {}
# What every text with the word contains, in lower case: most texts have none of it, and this is found out much faster.
_STEMS: Dict[str, re.Pattern[str]] = {}
for _each in REPLACED:
    _STEMS[_each.pattern] = re.compile(re.sub(r"\(\?<?![^)]*\)", "", _each.pattern))
    _upper = "|".join(part[0].upper() + part[1:] for part in [_each.pattern] if part[0].isalpha())
    _lower = rf"(?<![A-Za-z])(?:{_each.pattern})"
    _PATTERNS[_each.pattern] = re.compile(f"{_lower}|{_upper}" if _upper else rf"(?i:{_lower})")


class Found(NamedTuple):
    path: str
    line: int
    word: str
    instead: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.word!r}: say {self.instead!r}"


def words_in(path: str, text: str) -> Iterator[Found]:
    """The replaced words in a text.

    Parameters:
        path: from the root of the tree.
    """
    lowered = text.lower()
    for each in REPLACED:
        if _STEMS[each.pattern].search(lowered) and not (each.except_in and re.match(each.except_in, path)):
            for match in _PATTERNS[each.pattern].finditer(text):
                yield Found(path, text.count("\n", 0, match.start()) + 1, match[0], each.instead)


def files(folder: Path = TREE) -> Iterator[Path]:
    """Files whose words are looked at."""
    for path in sorted(folder.iterdir()):
        name = str(path.relative_to(TREE))
        if path.is_symlink() or name in SKIPPED_FILES:
            continue
        if path.is_dir():
            is_hidden = path.name.startswith(".") and path.name != ".ci"
            if not is_hidden and path.name not in SKIPPED_FOLDERS and not path.name.endswith(".egg-info"):
                yield from files(path)
        elif path.suffix in SUFFIXES:
            yield path


@functools.cache
def found_in_tree() -> Dict[str, List[Found]]:
    """The replaced words of all files that have some, by path."""
    found: Dict[str, List[Found]] = {}
    for path in files():
        name = str(path.relative_to(TREE))
        words = sorted(words_in(name, path.read_text(encoding="utf-8")))
        if words:
            found[name] = words
    return found


def main() -> int:
    """Print the places that use a replaced word; returns the exit code."""
    found = found_in_tree()
    for words in found.values():
        print("\n".join(map(str, words)))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
