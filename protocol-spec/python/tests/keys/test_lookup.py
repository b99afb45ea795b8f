"""Which key file a program uses: the first that applies, and no other after it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Iterator, Optional

import pytest

from scaler_protocol.host.discovery import Announcement
from scaler_protocol.host.sodium import load_sodium
from scaler_protocol.keys.errors import KeyFileError
from scaler_protocol.keys.key_directory import KeyDirectory
from scaler_protocol.keys.key_file import KeyFile, write_key_file
from scaler_protocol.keys.lookup import find_key

SODIUM = load_sodium()
HERE, ELSEWHERE = "tcp://127.0.0.1:2345", "tcp://db:2345"


@pytest.fixture(autouse=True)
def _own_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SCALER_RUN_DIRECTORY", str(tmp_path / "run"))
    monkeypatch.setenv("SCALER_KEY_DIRECTORY", str(tmp_path / "default"))
    monkeypatch.delenv("SCALER_KEY_FILE", raising=False)


def made_directory(path: Path) -> KeyDirectory:
    directory = KeyDirectory(str(path))
    directory.open_or_create(SODIUM)
    return directory


@pytest.fixture
def default(tmp_path: Path) -> KeyDirectory:
    return made_directory(tmp_path / "default")


@pytest.fixture
def announced(tmp_path: Path) -> Iterator[KeyDirectory]:
    """Of a scheduler that runs at HERE, with a folder of its own."""
    directory = made_directory(tmp_path / "announced")
    with Announcement("scheduler", HERE, key_directory=directory.path, security="curve"):
        yield directory


@pytest.fixture
def given(tmp_path: Path) -> Path:
    path = tmp_path / "given.key"
    write_key_file(str(path), KeyFile("client", "default", "given", SODIUM.new_keys(), (SODIUM.new_keys().public,)))
    return path


def find_key_file(address: str, key_file: Optional[str]) -> Optional[KeyFile]:
    return find_key(address, key_file).key_file


def name_of(address: str, key_file: object = None) -> str:
    found = find_key_file(address, None if key_file is None else str(key_file))
    return "none" if found is None else found.name


def test_without_any_key_there_is_none() -> None:
    assert find_key_file(HERE, None) is None
    assert find_key_file(ELSEWHERE, None) is None


def test_a_given_file_comes_before_all_others(
    given: Path, announced: KeyDirectory, default: KeyDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SCALER_KEY_FILE", "/nowhere")

    assert name_of(HERE, given) == "given"


def test_the_file_of_the_variable_comes_next(
    given: Path, announced: KeyDirectory, default: KeyDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SCALER_KEY_FILE", str(given))

    assert name_of(HERE) == name_of(ELSEWHERE) == "given"


def test_then_the_owner_s_key_of_the_scheduler_that_runs_there(announced: KeyDirectory, default: KeyDirectory) -> None:
    assert find_key_file(HERE, None) == announced.owner()
    assert find_key_file("tcp://localhost:2345", None) == announced.owner()
    assert find_key_file("tcp://127.0.0.1:2346", None) == default.owner()


def test_a_scheduler_without_keys_needs_none_although_there_is_one(default: KeyDirectory) -> None:
    with Announcement("scheduler", HERE, security="none"):
        assert find_key_file(HERE, None) is None
        assert find_key_file(ELSEWHERE, None) == default.owner()
    assert find_key_file(HERE, None) == default.owner()


def test_then_the_owner_s_key_of_the_default_folder(default: KeyDirectory) -> None:
    assert find_key_file(HERE, None) == find_key_file(ELSEWHERE, None) == default.owner()
    with Announcement("scheduler", HERE):
        assert find_key_file(HERE, None) == default.owner()


@pytest.mark.parametrize("mode", [0o644, 0o620])
def test_a_file_that_is_not_private_is_an_error_wherever_it_comes_from(
    mode: int, given: Path, announced: KeyDirectory, default: KeyDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    for path in (given, Path(announced.path, "owner.key"), Path(default.path, "owner.key")):
        path.chmod(mode)

    for address, file in ((HERE, given), (HERE, None), (ELSEWHERE, None)):
        with pytest.raises(KeyFileError, match="chmod 600"):
            name_of(address, file)
    monkeypatch.setenv("SCALER_KEY_FILE", str(given))
    with pytest.raises(KeyFileError, match="chmod 600"):
        name_of(ELSEWHERE)


def test_a_file_that_is_missing_is_an_error_if_it_was_given(
    default: KeyDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(KeyFileError, match="there is no key file /nowhere"):
        find_key_file(HERE, "/nowhere")
    monkeypatch.setenv("SCALER_KEY_FILE", "/nowhere")
    with pytest.raises(KeyFileError, match="there is no key file /nowhere"):
        find_key_file(HERE, None)


def test_an_unsafe_default_folder_is_an_error(default: KeyDirectory) -> None:
    os.chmod(default.path, 0o755)

    with pytest.raises(KeyFileError, match="chmod 700"):
        find_key_file(ELSEWHERE, None)


def test_announcements_in_a_folder_that_others_can_write_are_ignored(
    tmp_path: Path, announced: KeyDirectory, default: KeyDirectory
) -> None:
    (tmp_path / "run").chmod(0o777)

    assert find_key_file(HERE, None) == default.owner()


def test_looking_for_a_key_imports_no_library_until_there_is_one() -> None:
    look = (
        "import sys; from scaler_protocol.keys.lookup import find_key;"
        " assert find_key('tcp://127.0.0.1:2345', None).key_file is None;"
        " print(sorted({'nacl', 'scaler_protocol.host.sodium'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", look], capture_output=True, text=True, timeout=60)

    assert (done.stdout, done.stderr) == ("[]\n", "")


def test_an_empty_path_is_no_path(default: KeyDirectory) -> None:
    """Otherwise an option that came out empty would be another key, or none."""
    with pytest.raises(KeyFileError, match="empty"):
        find_key_file(HERE, "")
