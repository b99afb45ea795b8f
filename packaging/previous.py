"""Build the scheduler's single file of an earlier release: dist/previous/scaler_scheduler.

    tag ──git worktree──▶ build/previous ──its own `make dist-pypy`──▶ dist/previous/scaler_scheduler, dist/previous/TAG

Rules:
- The earlier tree is built by its own rules, with its own tools, and this tree's files are not touched.
- Without a tag, the newest release tag before this commit is taken. If there is none, that is said, and is no error:
  the first release has no predecessor. A tag that is given and does not exist is an error.
- What was built from the same commit before is kept.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import List

TREE = Path(__file__).resolve().parents[1]
TAGS = "v*"


def git(*arguments: str) -> str:
    """The output of a command of git. Raises CalledProcessError."""
    command = ["git", "-C", str(TREE), *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def newest_tag() -> str:
    """The newest release tag before this commit; empty if there is none, or no history."""
    try:
        return git("describe", "--tags", "--abbrev=0", "--match", TAGS, "HEAD^")
    except (subprocess.CalledProcessError, FileNotFoundError):
        return ""


def build(tag: str, made: Path) -> None:
    """Build the file of a tag, or of any commit, in the folder `made`. Raises CalledProcessError."""
    commit = git("rev-parse", "--verify", f"{tag}^{{commit}}")
    marker = made / "TAG"
    if marker.exists() and marker.read_text().split()[-1:] == [commit] and (made / "scaler_scheduler").exists():
        return
    tree = TREE / "build/previous"
    subprocess.run(["git", "-C", str(TREE), "worktree", "remove", "--force", str(tree)], capture_output=True)
    shutil.rmtree(tree, ignore_errors=True)
    git("worktree", "prune")
    git("worktree", "add", "--detach", str(tree), commit)
    try:
        environment = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS"))}
        subprocess.run(["make", "-C", str(tree), "dist-pypy"], check=True, env=environment)
        shutil.rmtree(made, ignore_errors=True)
        made.mkdir(parents=True)
        shutil.copy2(tree / "dist/pypy/scaler_scheduler", made / "scaler_scheduler")
        marker.write_text(f"{tag} {commit}\n")
    finally:
        git("worktree", "remove", "--force", str(tree))


def main(arguments: List[str]) -> int:
    tag = "".join(arguments) or newest_tag()
    if not tag:
        print("there is no earlier release tag here: dist/previous is not built (TAG=... names a commit)")
        return 0
    try:
        build(tag, TREE / "dist/previous")
    except subprocess.CalledProcessError as error:
        print(f"error: {tag} cannot be built: {error.stderr or error}".rstrip(), file=sys.stderr)
        return 1
    print(f"dist/previous/scaler_scheduler: {tag}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
