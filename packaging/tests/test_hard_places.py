"""The single file with PyPy in places that are hard on it: it works there, or says why not and what to do.

Rules: where a start has to fail, the last place that it would try, /tmp, is closed to it.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any, Callable, Dict, List

import pytest
from empty_root import EmptyRoot
from packaged import assert_finds_itself_sound
from pypy_file import DEADLINE_SECONDS, NOBODY, SYSTEMS, command_in, copies, run_with_mount

STARTS = 10
ALL_AT_ONCE = f"""
results=$1; shift
for number in $(seq {STARTS}); do
    ( "$@" > "$results/$number.output" 2> "$results/$number.errors"; echo $? > "$results/$number.code" ) &
done
wait
"""
LONG = "long" * 50
ODD_NAME = "/tmp/with spaces, ünïcode 日本 ' \" \\ * \n"
FOR_THE_LOADER = "its path has one of the characters $ : ; which mean something else to the loader"

pytestmark = pytest.mark.slow


def systems() -> List[Any]:
    """The first one in `make test`, the others in `make test-all`."""
    marks = [pytest.mark.exhaustive]
    return [
        pytest.param(each, id=name, marks=marks if index else []) for index, (name, each) in enumerate(SYSTEMS.items())
    ]


@pytest.mark.parametrize("system", systems())
def test_ten_starts_at_once_serve_and_stop_and_unpack_once(
    system: Dict[str, Any], one_file: Path, empty_root: EmptyRoot, tmp_path: Path
) -> None:
    command = command_in(empty_root, one_file, **system)
    inner = command.index("env")  # what is before it makes the system
    results = tmp_path / "results"
    results.mkdir()
    ten = ["sh", "-c", ALL_AT_ONCE, "sh", str(results), *command[inner:], "--self-test"]
    subprocess.run([*command[:inner], *ten], check=True, timeout=DEADLINE_SECONDS)
    errors = "".join(path.read_text() for path in results.glob("*.errors"))
    assert [path.read_text() for path in results.glob("*.code")] == ["0\n"] * STARTS, errors
    assert all(path.read_text().endswith("\nok\n") for path in results.glob("*.output"))
    [line] = errors.splitlines()
    assert "unpacking, this once, to /" in line


def test_a_place_may_have_any_name_that_is_text(one_file: Path, empty_root: EmptyRoot) -> None:
    # No locale says how names are encoded, and the path is longer than that of a socket may be.
    empty_root.add(one_file, "/scaler_scheduler")
    place = f"{ODD_NAME}/{LONG}/{LONG}/{LONG}"
    said = assert_finds_itself_sound([*empty_root.command("/scaler_scheduler")], {"SCALER_CACHE_HOME": place})
    assert f" files in {place}/" in said


def a_file_of_no_bytes(place: Path) -> None:
    place.write_bytes(b"")


def a_folder_of_another_user(place: Path) -> None:
    place.mkdir()
    try:
        os.chown(place, NOBODY, NOBODY)
    except PermissionError:
        pytest.skip("only root can give a folder to another")


def nothing(place: Path) -> None:
    pass


@pytest.mark.parametrize(
    ("name", "make", "reason"),
    [
        ("file", a_file_of_no_bytes, "is not a folder"),
        ("theirs", a_folder_of_another_user, "is another user's, or others may write to it"),
        ("$ORIGIN", nothing, FOR_THE_LOADER),
        ("a:b", nothing, FOR_THE_LOADER),
        ("latin-\udce9", nothing, "its path is not in UTF-8"),
        ("x" * 300, nothing, "Filename too long"),
    ],
)
def test_a_place_that_will_not_do_is_named_with_the_reason(
    name: str, make: Callable[[Path], None], reason: str, one_file: Path, empty_root: EmptyRoot
) -> None:
    empty_root.add(one_file, "/scaler_scheduler")
    empty_root.outside("/tmp/scaler-0").mkdir()
    empty_root.outside("/tmp/scaler-0").chmod(0o777)
    make(empty_root.outside(f"/tmp/{name}"))
    environment = {"SCALER_CACHE_HOME": f"/tmp/{name}", "HOME": "/nonexistent"}
    finished = empty_root.run("/scaler_scheduler", "--version", env=environment, errors="surrogateescape")
    assert finished.returncode == 1
    assert f"\n  /tmp/{name}: {reason}\n" in finished.stderr
    assert "Set SCALER_CACHE_HOME to a folder of yours with " in finished.stderr


def test_where_no_program_may_run_the_error_says_so(one_file: Path, c_library_root: EmptyRoot) -> None:
    c_library_root.add(one_file, "/scaler_scheduler")
    home = c_library_root.outside("/tmp/home")
    script = 'mkdir -m 700 "$0" && exec chroot "$1" /scaler_scheduler --version'
    finished = run_with_mount(
        *("noexec,mode=1777", c_library_root.outside("/tmp")),
        *("sh", "-c", script, str(home), str(c_library_root.folder)),
        HOME="/tmp/home",
    )
    assert finished.returncode == 1
    for place in ("/tmp/home/.cache/scaler", "/tmp/scaler-0"):
        assert f"\n  {place}: its file system is mounted noexec\n" in finished.stderr
    assert "on a file system that programs may be run from" in finished.stderr


def test_a_cache_that_goes_while_it_is_filled_is_no_reason_not_to_start(one_file: Path, tmp_path: Path) -> None:
    cache, home = tmp_path / "cache", tmp_path / "home"
    home.mkdir()
    with subprocess.Popen(
        [str(one_file), "--version"],
        env={"SCALER_CACHE_HOME": str(cache), "HOME": str(home)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as start:
        assert start.stderr is not None
        assert f"unpacking, this once, to {cache}/" in start.stderr.readline()
        cache.rename(tmp_path / "gone")
        output, errors = start.communicate(timeout=DEADLINE_SECONDS)
    assert start.returncode == 0 and output.startswith("scaler_scheduler "), errors
    assert len(copies(home / ".cache/scaler")) == 1 and f"unpacking, this once, to {home}/" in errors
