"""A scheduler's folder of keys: made once, private, changed as a whole."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import Iterator, List

import pytest
from other_user import OTHER_USER_ID, needs_root, run_as_other_user

from scaler_protocol.host.sodium import load_sodium
from scaler_protocol.keys import key_directory
from scaler_protocol.keys.allow_list import Grant
from scaler_protocol.keys.errors import KeyFileError
from scaler_protocol.keys.key_directory import KeyDirectory, default_key_directory
from scaler_protocol.keys.key_text import encode_key, fingerprint
from scaler_protocol.wire.curve import KeyPair

pytestmark = pytest.mark.exhaustive_on_pypy  # files are the same there

SODIUM = load_sodium()
ALICE = bytes(range(32))
GRANT = Grant("worker", "default", "alice")
FILES = ["authorized_keys", "owner.key", "scheduler.key"]

OPEN = """
import sys
from scaler_protocol.host.sodium import load_sodium
from scaler_protocol.keys.key_directory import KeyDirectory
from scaler_protocol.keys.key_text import encode_key
directory, sodium = KeyDirectory(sys.argv[1]), load_sodium()
print("ready", flush=True)
sys.stdin.readline()
directory.open_or_create(sodium)
owner = directory.owner()
assert list(directory.allow_list().grants) == [owner.keys.public]
assert owner.server_keys == tuple(keys.public for keys in directory.server_key_pairs())
print(encode_key(owner.keys.public), flush=True)
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "scaler" / "keys"


@pytest.fixture
def directory(path: Path) -> KeyDirectory:
    made = KeyDirectory(str(path))
    made.open_or_create(SODIUM)
    return made


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def contents(path: Path) -> List[bytes]:
    return [(path / name).read_bytes() for name in FILES]


def test_a_scheduler_makes_its_keys_by_itself(path: Path, directory: KeyDirectory) -> None:
    [server], owner = directory.server_key_pairs(), directory.owner()

    assert sorted(os.listdir(path)) == FILES
    assert mode_of(path) == 0o700 and {mode_of(path / name) for name in FILES} == {0o600}
    assert SODIUM.public_key(server.secret) == server.public
    assert owner.server_keys == (server.public,)
    assert owner.keys.public != server.public
    assert dict(directory.allow_list().grants) == {owner.keys.public: Grant("owner", "default", "owner", None)}
    assert owner.grant == Grant("owner", "default", "owner", None)


def test_a_folder_is_private_whatever_the_umask(path: Path) -> None:
    before = os.umask(0)
    try:
        KeyDirectory(str(path)).open_or_create(SODIUM)
    finally:
        os.umask(before)

    assert mode_of(path) == 0o700 and {mode_of(path / name) for name in FILES} == {0o600}


def test_keys_stay_the_same_from_then_on(path: Path, directory: KeyDirectory) -> None:
    before = contents(path)
    KeyDirectory(str(path)).open_or_create(SODIUM)

    assert contents(path) == before


def test_ten_schedulers_that_start_at_once_use_one_set_of_keys(path: Path) -> None:
    command = [sys.executable, "-c", OPEN, str(path)]
    programs = [subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(10)]
    for program in programs:
        assert program.stdout is not None
        assert program.stdout.readline() == "ready\n"
    for program in programs:
        assert program.stdin is not None
        program.stdin.write("\n")
        program.stdin.flush()
    printed = [program.communicate(timeout=60)[0] for program in programs]

    owner = encode_key(KeyDirectory(str(path)).owner().keys.public)
    assert [program.returncode for program in programs] == [0] * 10
    assert set(printed) == {f"{owner}\n"}
    assert sorted(os.listdir(path)) == FILES, "there are no unfinished files"


@pytest.mark.parametrize("kept", [[], ["scheduler.key"], ["scheduler.key", "owner.key"]])
def test_a_program_that_was_killed_while_it_made_the_files_leaves_the_others_to_the_next(
    path: Path, directory: KeyDirectory, kept: List[str]
) -> None:
    before = {name: (path / name).read_bytes() for name in kept}
    for name in set(FILES) - set(kept):
        (path / name).unlink()

    directory.open_or_create(SODIUM)
    owner = directory.owner()
    assert {name: (path / name).read_bytes() for name in kept} == before
    assert owner.server_keys == (directory.server_key_pairs()[0].public,)
    assert list(directory.allow_list().grants) == [owner.keys.public]


def test_a_new_owner_is_admitted_next_to_the_keys_that_were_there(path: Path, directory: KeyDirectory) -> None:
    directory.add(GRANT, ALICE)
    old = directory.owner().keys.public
    (path / "owner.key").unlink()

    directory.open_or_create(SODIUM)
    new = directory.owner().keys.public
    assert new != old and list(directory.allow_list().grants) == [old, ALICE, new]


class SimultaneousKeyDirectory(KeyDirectory):
    """Two of them ask for the first time whether there is an owner, before either goes on."""

    both_asked = threading.Barrier(2)
    has_asked = False

    def has_owner(self) -> bool:
        found = super().has_owner()
        if not self.has_asked:
            self.has_asked = True
            self.both_asked.wait(timeout=60)
        return found


def test_two_programs_that_miss_the_owner_at_once_admit_one_new_owner(path: Path, directory: KeyDirectory) -> None:
    old = directory.owner().keys.public
    (path / "owner.key").unlink()
    programs = [SimultaneousKeyDirectory(str(path)) for _ in range(2)]
    threads = [threading.Thread(target=program.open_or_create, args=(SODIUM,)) for program in programs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert list(directory.allow_list().grants) == [old, directory.owner().keys.public]


@pytest.mark.parametrize("mode", [0o755, 0o750, 0o701, 0o777])
def test_a_folder_that_others_can_access_is_refused_by_every_method(
    path: Path, directory: KeyDirectory, mode: int
) -> None:
    before = contents(path)
    path.chmod(mode)
    for use in (
        lambda: directory.open_or_create(SODIUM),
        directory.server_key_pairs,
        directory.owner,
        directory.allow_list,
        lambda: directory.add(GRANT, ALICE),
        lambda: directory.revoke("owner"),
        lambda: directory.rotate(SODIUM),
        directory.forget_old,
    ):
        with pytest.raises(KeyFileError, match=rf"others can access it \(mode {mode:04o}\); run: chmod 700 {path}"):
            use()
    assert contents(path) == before


def test_a_file_in_the_folder_s_place_is_refused(tmp_path: Path) -> None:
    (tmp_path / "keys").touch()

    with pytest.raises(KeyFileError, match="it is not a directory; name another folder in SCALER_KEY_DIRECTORY"):
        KeyDirectory(str(tmp_path / "keys")).open_or_create(SODIUM)


def test_a_folder_that_cannot_be_made_is_an_error_that_says_what_to_do() -> None:
    with pytest.raises(KeyFileError, match=r"cannot make the folder /proc/none/keys for keys: .*SCALER_KEY_DIRECTORY"):
        KeyDirectory("/proc/none/keys").open_or_create(SODIUM)


IMPORTS_OF_OTHER_USER = """
import sys
from scaler_protocol.host.sodium import load_sodium
from scaler_protocol.keys.errors import KeyFileError
from scaler_protocol.keys.key_directory import KeyDirectory, default_key_directory
sodium = load_sodium()
import ctypes.util, encodings.idna, pwd
"""
OPEN_AS_OTHER_USER = """
try:
    KeyDirectory(sys.argv[1]).open_or_create(sodium)
    print("made")
except KeyFileError as error:
    print("refused:", error)
"""


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that all users can write, as /tmp."""
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o1777)
        yield Path(folder)


@needs_root
def test_the_folder_of_another_user_is_refused(open_folder: Path) -> None:
    theirs, ours = open_folder / "theirs", open_folder / "ours"
    assert run_as_other_user(IMPORTS_OF_OTHER_USER, OPEN_AS_OTHER_USER, str(theirs)) == "made"
    with pytest.raises(KeyFileError, match=f"it belongs to the user with the id {OTHER_USER_ID}"):
        KeyDirectory(str(theirs)).open_or_create(SODIUM)

    KeyDirectory(str(ours)).open_or_create(SODIUM)
    printed = run_as_other_user(IMPORTS_OF_OTHER_USER, OPEN_AS_OTHER_USER, str(ours))
    assert printed.startswith(f"refused: cannot use the keys in {ours}: it belongs to the user with the id 0")


@needs_root
def test_a_folder_that_another_user_has_made_beforehand_is_refused(open_folder: Path) -> None:
    path = open_folder / "keys"
    path.mkdir(0o777)
    os.chown(path, OTHER_USER_ID, OTHER_USER_ID)

    with pytest.raises(KeyFileError, match="it belongs to the user with the id"):
        KeyDirectory(str(path)).open_or_create(SODIUM)
    assert os.listdir(path) == []


def test_a_mounted_folder_that_is_read_only_is_used_as_it_is(
    path: Path, directory: KeyDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As Kubernetes mounts a secret with two of the files.
    path.chmod(0o1777)
    (path / "owner.key").unlink()
    monkeypatch.setattr(key_directory, "_is_read_only", lambda _: True)

    directory.open_or_create(SODIUM)
    assert len(directory.server_key_pairs()) == 1 and len(directory.allow_list().grants) == 1
    assert not directory.has_owner()
    (path / "scheduler.key").chmod(0o644)
    with pytest.raises(KeyFileError, match="other users can access it"):
        directory.server_key_pairs()


def test_a_read_only_mount_is_recognized() -> None:
    mounts = [line.split() for line in Path("/proc/self/mounts").read_text().splitlines()]
    read_only = [mount[1] for mount in mounts if "ro" in mount[3].split(",") and os.path.isdir(mount[1])]
    if not read_only:
        pytest.skip("no folder is mounted read-only here")
    assert key_directory._is_read_only(read_only[0])
    assert not key_directory._is_read_only(tempfile.gettempdir())


def test_the_list_may_be_read_by_others_and_not_written(path: Path, directory: KeyDirectory) -> None:
    (path / "authorized_keys").chmod(0o644)
    assert len(directory.allow_list().grants) == 1

    (path / "authorized_keys").chmod(0o664)
    with pytest.raises(KeyFileError, match="other users can access it"):
        directory.allow_list()


def test_a_key_is_added_and_revoked_and_comments_stay(path: Path, directory: KeyDirectory) -> None:
    before = (path / "authorized_keys").read_text()
    directory.add(GRANT, ALICE)
    assert directory.allow_list().grant(ALICE, now=0) == GRANT
    with pytest.raises(KeyFileError, match="already authorized"):
        directory.add(GRANT, ALICE)

    for name in ("alice", encode_key(ALICE), fingerprint(ALICE)):
        assert directory.revoke(name) == {ALICE: GRANT}
        assert directory.allow_list().grant(ALICE, now=0) is None
        assert (path / "authorized_keys").read_text() == before
        directory.add(GRANT, ALICE)
    with pytest.raises(KeyFileError, match="no authorized key has this name"):
        directory.revoke("bob")
    assert before.startswith("# The keys that the scheduler admits")
    assert mode_of(path / "authorized_keys") == 0o600 and sorted(os.listdir(path)) == FILES


def test_no_change_is_lost_when_several_programs_change_the_list_at_once(directory: KeyDirectory) -> None:
    keys = [SODIUM.new_keys().public for _ in range(20)]
    start = threading.Barrier(4)

    def add(own: List[bytes]) -> None:
        start.wait()
        for key in own:
            directory.add(GRANT, key)

    threads = [threading.Thread(target=add, args=(keys[number::4],)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert directory.allow_list().grants.keys() >= set(keys)


def test_a_change_that_does_not_end_is_an_error_that_says_who_makes_it(
    path: Path, directory: KeyDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(key_directory, "LOCK_TIMEOUT_SECONDS", 0.05)
    with directory._changing():
        with pytest.raises(KeyFileError, match=f"process {os.getpid()} on .*; if it has ended, remove {path}/changing"):
            directory.add(GRANT, ALICE)
    directory.add(GRANT, ALICE)


def test_a_new_server_key_comes_first_and_the_old_ones_stay_until_they_are_forgotten(directory: KeyDirectory) -> None:
    [first], owner_key = directory.server_key_pairs(), directory.owner().keys
    second = directory.rotate(SODIUM)
    third = directory.rotate(SODIUM)

    pairs = directory.server_key_pairs()
    assert [pair.public for pair in pairs] == [third, second, first.public]
    assert pairs[2] == first
    assert directory.owner().server_keys == (third, second, first.public)
    assert directory.owner().keys == owner_key, "the owner's own key is the same"

    assert directory.forget_old() == 2
    assert directory.server_key_pairs() == pairs[:1]
    assert directory.owner().server_keys == (third,)
    assert directory.forget_old() == 0


def test_there_is_a_limit_to_server_keys_that_are_not_forgotten(directory: KeyDirectory) -> None:
    for _ in range(15):
        directory.rotate(SODIUM)
    before = directory.server_key_pairs()
    with pytest.raises(KeyFileError, match="1 to 16 keys, got 17"):
        directory.rotate(SODIUM)
    assert directory.server_key_pairs() == before


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "public_keys, secret_keys is missing"),
        ("public_keys = []\nsecret_keys = []", "1 to 16 keys, got 0"),
        (f'public_keys = ["{encode_key(ALICE)}"]\nsecret_keys = []', "1 public and 0 secret keys"),
        (f'public_keys = ["{encode_key(ALICE)}"]\nsecret_keys = ["{encode_key(bytes(32))}"]', "do not belong together"),
    ],
)
def test_malformed_server_keys_are_refused(path: Path, directory: KeyDirectory, text: str, problem: str) -> None:
    (path / "scheduler.key").write_text(text)

    with pytest.raises(KeyFileError, match=f"cannot use {path}/scheduler.key: .*{problem}"):
        directory.server_key_pairs()


def test_a_missing_file_is_an_error_that_says_what_to_do(path: Path, directory: KeyDirectory) -> None:
    (path / "scheduler.key").unlink()
    (path / "authorized_keys").unlink()

    for use in (directory.server_key_pairs, directory.allow_list):
        with pytest.raises(KeyFileError, match="start a scheduler, or restore it"):
            use()


def test_the_secrets_of_a_server_are_in_no_repr(directory: KeyDirectory) -> None:
    pairs: List[KeyPair] = directory.server_key_pairs()
    for text in (repr(pairs), repr(directory), repr(vars(directory)), str(directory.owner())):
        for secret in (pairs[0].secret, directory.owner().keys.secret):
            assert repr(secret) not in text and secret.hex() not in text and encode_key(secret) not in text


# The default folder


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    made = tmp_path / "home"
    made.mkdir()
    monkeypatch.setenv("HOME", str(made))
    monkeypatch.setenv("SCALER_RUN_DIRECTORY", str(tmp_path / "run"))
    for variable in ("XDG_CONFIG_HOME", "SCALER_KEY_DIRECTORY"):
        monkeypatch.delenv(variable, raising=False)
    return made


def test_the_default_folder_is_the_one_of_the_variable(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SCALER_KEY_DIRECTORY", "/somewhere/else")
    assert default_key_directory() == "/somewhere/else"

    monkeypatch.chdir(home)
    monkeypatch.setenv("SCALER_KEY_DIRECTORY", "keys")
    assert default_key_directory() == str(home / "keys")


def test_the_default_folder_is_in_the_configuration_of_the_user(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert default_key_directory() == str(home / ".config/scaler/keys")
    assert os.listdir(home) == [], "to ask makes nothing"

    monkeypatch.setenv("XDG_CONFIG_HOME", str(home / "configuration"))
    assert default_key_directory() == str(home / "configuration/scaler/keys")
    monkeypatch.setenv("XDG_CONFIG_HOME", "relative")
    assert default_key_directory() == str(home / ".config/scaler/keys")

    KeyDirectory(default_key_directory()).open_or_create(SODIUM)
    assert sorted(os.listdir(home / ".config/scaler/keys")) == FILES


def test_without_a_home_the_default_folder_is_in_the_private_run_folder(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_run_folder = str(tmp_path / "run" / "keys")
    monkeypatch.setenv("HOME", "/proc/self")  # is not writable
    assert default_key_directory() == in_run_folder
    monkeypatch.setenv("HOME", "none")
    assert default_key_directory() == in_run_folder

    KeyDirectory(in_run_folder).open_or_create(SODIUM)
    assert mode_of(tmp_path / "run") == 0o700
    assert KeyDirectory(in_run_folder).owner().role == "owner"


@needs_root
def test_a_home_of_another_user_is_not_used(home: Path, open_folder: Path) -> None:
    os.chmod(home, 0o777)
    printed = run_as_other_user(
        IMPORTS_OF_OTHER_USER,
        "print(default_key_directory())",
        HOME=str(open_folder),
        SCALER_RUN_DIRECTORY=str(open_folder / "run"),
    )
    assert printed == f"{open_folder}/run/keys"


def test_an_unsafe_folder_in_the_home_is_an_error_and_not_avoided(home: Path) -> None:
    directory = KeyDirectory(default_key_directory())
    directory.open_or_create(SODIUM)
    os.chmod(directory.path, 0o755)

    assert default_key_directory() == directory.path
    with pytest.raises(KeyFileError, match="chmod 700"):
        KeyDirectory(default_key_directory()).owner()
