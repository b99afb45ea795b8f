"""`scaler keys`, as people use it.

Rule: where a terminal, a file or a process matters, the command has a process of its own; elsewhere it runs in this
one, as starting it takes longer than all that it does.
"""

from __future__ import annotations

import contextlib
import io
import os
import pty
import re
import stat
import subprocess
import sys
from pathlib import Path
from typing import IO, Dict, Iterator, List, Tuple, Union

import pytest

from scaler_protocol.host.discovery import Announcement
from scaler_protocol.host.sodium import load_sodium
from scaler_protocol.keys import command
from scaler_protocol.keys.allow_list import ROLES
from scaler_protocol.keys.errors import KeyFileError
from scaler_protocol.keys.expiry import parse_time
from scaler_protocol.keys.key_directory import KeyDirectory
from scaler_protocol.keys.key_file import KeyFile, parse_key_file, read_key_file
from scaler_protocol.keys.key_text import encode_key, fingerprint
from scaler_protocol.keys.keys_options import COMMANDS

pytestmark = pytest.mark.exhaustive_on_pypy  # the command starts some forty processes

RUN = "import sys; from scaler_protocol.keys.command import main; sys.exit(main(sys.argv[1:]))"

SCHEDULER = """
import signal, sys
from scaler_protocol.host.discovery import Announcement
signal.signal(signal.SIGHUP, lambda *_: print("reloads", flush=True))
with Announcement("scheduler", sys.argv[1], key_directory=sys.argv[2]):
    print("runs", flush=True)
    sys.stdin.read()
"""


class Keys:
    """Runs the command with a home of its own."""

    def __init__(self, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.home = home
        self.directory = KeyDirectory(str(home / ".config/scaler/keys"))
        self.environment: Dict[str, str] = {"HOME": str(home), "SCALER_RUN_DIRECTORY": str(home / "run")}
        self._monkeypatch = monkeypatch

    def run(self, *arguments: str) -> Tuple[int, str, str]:
        """Exit code, standard output and standard error; standard output is a pipe."""
        output, errors = io.StringIO(), io.StringIO()
        pipe = os.pipe()
        try:
            with self._monkeypatch.context() as patch:
                for variable in ("XDG_CONFIG_HOME", "SCALER_KEY_DIRECTORY"):
                    patch.delenv(variable, raising=False)
                for variable, value in self.environment.items():
                    patch.setenv(variable, value)
                patch.setattr(command, "_STANDARD_OUTPUT", pipe[1])
                patch.chdir(self.home)
                with contextlib.redirect_stdout(output), contextlib.redirect_stderr(errors):
                    code = command.main(arguments)
        except SystemExit as end:
            code = int(end.code or 0)
        finally:
            os.close(pipe[0])
            os.close(pipe[1])
        return code, output.getvalue(), errors.getvalue()

    def run_process(self, *arguments: str, stdout: Union[int, IO[str]] = subprocess.PIPE) -> Tuple[int, str, str]:
        """The same of a process."""
        result = subprocess.run(
            [sys.executable, "-c", RUN, *arguments],
            env=self.environment,
            cwd=self.home,
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=subprocess.PIPE,
            text=True,
            timeout=60,
        )
        return result.returncode, result.stdout or "", result.stderr

    def new(self, *arguments: str) -> KeyFile:
        code, text, errors = self.run("new", *arguments)
        assert code == 0, errors
        return parse_key_file(text, "standard output")


@pytest.fixture
def keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Keys:
    return Keys(tmp_path, monkeypatch)


def texts_of_secrets(*pairs: bytes) -> List[str]:
    return [text for secret in pairs for text in (encode_key(secret), secret.hex(), repr(secret))]


# new


def test_a_new_key_is_authorized_and_its_file_is_all_that_a_peer_needs(keys: Keys) -> None:
    key_file = keys.new("--role", "worker", "--tenant", "team", "--name", "node1", "--expires", "2099-01-01")

    assert key_file.grant == ("worker", "team", "node1", parse_time("2099-01-01"))
    assert keys.directory.allow_list().grants[key_file.keys.public] == key_file.grant
    assert key_file.server_keys == (keys.directory.server_key_pairs()[0].public,)
    assert load_sodium().public_key(key_file.keys.secret) == key_file.keys.public


@pytest.mark.parametrize("role", [role for role in ROLES if role != "owner"])
def test_what_is_said_of_a_new_key_is_on_standard_error_and_has_no_secret(keys: Keys, role: str) -> None:
    code, text, told = keys.run("new", "--role", role)
    key_file = parse_key_file(text, "standard output")

    assert code == 0 and key_file.role == role and key_file.name == f"{role}-1"
    tenant = "default" if role in ("client", "worker") else "*"
    assert (
        f"Authorized {role}-1 (role {role}, tenant {tenant}), which does not expire, in {keys.directory.path}" in told
    )
    assert "Use it with: " in told
    for secret in texts_of_secrets(key_file.keys.secret, keys.directory.server_key_pairs()[0].secret):
        assert secret not in told


def test_names_are_given_one_after_the_other_and_not_twice(keys: Keys) -> None:
    assert [keys.new("--role", "client").name for _ in range(2)] == ["client-1", "client-2"]

    code, text, errors = keys.run("new", "--role", "worker", "--name", "client-1")
    assert (code, text) == (1, "")
    assert "there is a key client-1 already: choose another --name, or revoke it first" in errors
    assert len(keys.directory.allow_list().grants) == 3


def test_an_output_file_is_private_from_the_start_and_never_replaced(keys: Keys) -> None:
    path = keys.home / "a.key"
    code, text, told = keys.run_process("new", "--role", "client", "--output", "a.key")
    assert (code, text) == (0, "") and "Its key file is a.key." in told
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    before = read_key_file(str(path))

    code, _, errors = keys.run("new", "--role", "client", "-o", "a.key")
    assert code == 1 and "a.key exists already" in errors
    assert read_key_file(str(path)) == before
    assert len(keys.directory.allow_list().grants) == 2, "the second key is not authorized"


def test_an_output_file_is_not_written_through_a_link(keys: Keys) -> None:
    (keys.home / "a.key").symlink_to(keys.home / "target")

    assert keys.run("new", "--role", "client", "-o", "a.key")[0] == 1
    assert not (keys.home / "target").exists()


def test_a_secret_is_not_written_to_a_terminal(keys: Keys) -> None:
    ours, terminal = pty.openpty()
    try:
        code, _, errors = keys.run_process("new", "--role", "client", stdout=terminal)
        os.set_blocking(ours, False)
        with pytest.raises(BlockingIOError):
            os.read(ours, 1)
    finally:
        os.close(ours)
        os.close(terminal)

    assert code == 1
    assert "a key file is a secret, and standard output is a terminal: add --output FILE" in errors
    assert not os.path.exists(keys.directory.path), "nothing was made"


@pytest.mark.parametrize(("mode", "is_told"), [(0o644, True), (0o640, True), (0o600, False)])
def test_a_file_that_standard_output_is_redirected_to_becomes_private(keys: Keys, mode: int, is_told: bool) -> None:
    path = keys.home / "a.key"
    path.touch()
    path.chmod(mode)
    with open(path, "w") as file:
        code, _, told = keys.run_process("new", "--role", "client", stdout=file)

    assert code == 0 and read_key_file(str(path)).name == "client-1"
    assert (f"The file had mode {mode:04o}, and now has 0600" in told) == is_told


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no device here is always full")
def test_a_key_whose_file_could_not_be_written_is_not_authorized(keys: Keys) -> None:
    with open("/dev/full", "w") as full:
        code, _, errors = keys.run_process("new", "--role", "client", stdout=full)

    assert code == 1
    assert "could not be written: No space left on device; the key is not authorized" in errors
    assert [grant.role for grant in keys.directory.allow_list().grants.values()] == ["owner"]


def test_the_file_of_a_key_that_could_not_be_authorized_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def add(*_: object) -> None:
        assert (tmp_path / "a.key").exists()
        raise KeyFileError("the disk is full")

    monkeypatch.setattr(KeyDirectory, "add", add)
    arguments = ["--role", "client", "--directory", str(tmp_path / "keys"), "--output", str(tmp_path / "a.key")]

    assert command.main(["new", *arguments]) == 1
    assert "scaler keys new: the disk is full" in capsys.readouterr().err
    assert not (tmp_path / "a.key").exists()


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ([], "the following arguments are required: --role"),
        (["--role", "owner"], "invalid choice: 'owner'"),
        (["--role", "client", "--name", "a b"], "the name must have 1 to 64 letters"),
        (["--role", "client", "--tenant", "*"], "the tenant '*', which is all of them, is only for the roles"),
        (["--role", "client", "--tenant", ""], "the tenant must have 1 to 64 letters"),
        (["--role", "client", "--expires", "soon"], "--expires: a time must be like 2027"),
        (["--role", "client", "--expires", "2020-01-01"], "--expires: the key must expire in the future"),
        (["--rol", "client", "--out", "x", "--secret-key", "abc"], "unknown option --secret-key"),
    ],
)
def test_a_wrong_command_line_makes_nothing(keys: Keys, arguments: List[str], problem: str) -> None:
    code, text, errors = keys.run("new", *arguments)

    assert (code, text) == (2, "") and problem in errors
    assert os.listdir(keys.home) == []


def test_a_folder_that_is_not_private_is_refused(keys: Keys) -> None:
    keys.new("--role", "client")
    os.chmod(keys.directory.path, 0o755)

    for arguments in (["new", "--role", "client"], ["list"], ["show"], ["rotate"], ["revoke", "client-1"]):
        code, text, errors = keys.run(*arguments)
        assert (code, text) == (1, "") and f"run: chmod 700 {keys.directory.path}" in errors


def test_a_folder_can_be_named(keys: Keys) -> None:
    keys.new("--role", "client", "--directory", str(keys.home / "other"))
    assert len(KeyDirectory(str(keys.home / "other")).allow_list().grants) == 2

    keys.environment["SCALER_KEY_DIRECTORY"] = str(keys.home / "third")
    keys.new("--role", "client")
    assert len(KeyDirectory(str(keys.home / "third")).allow_list().grants) == 2
    assert not os.path.exists(keys.directory.path)


# list, show


def test_the_list_shows_what_people_need_and_no_secret(keys: Keys) -> None:
    alice = keys.new("--role", "client", "--name", "alice", "--expires", "2099-01-01")
    keys.new("--role", "worker", "--tenant", "team", "--name", "node1")
    code, text, errors = keys.run("list")

    assert (code, errors) == (0, "")
    rows = [line.split() for line in text.splitlines()]
    assert rows[0] == ["NAME", "ROLE", "TENANT", "EXPIRES", "FINGERPRINT"]
    assert [row[:4] for row in rows[1:]] == [
        ["owner", "owner", "default", "never"],
        ["alice", "client", "default", "2099-01-01T00:00:00Z"],
        ["node1", "worker", "team", "never"],
    ]
    assert rows[2][4] == fingerprint(alice.keys.public)
    for secret in texts_of_secrets(alice.keys.secret, keys.directory.owner().keys.secret):
        assert secret not in text


def test_an_expired_key_is_listed_as_such(keys: Keys) -> None:
    keys.new("--role", "client", "--name", "alice", "--expires", "2099-01-01")
    path = Path(keys.directory.path, "authorized_keys")
    path.write_text(path.read_text().replace("2099-01-01", "2020-01-01"))

    assert "2020-01-01T00:00:00Z (expired)" in keys.run("list")[1]


def test_the_folder_and_the_public_keys_are_shown_and_no_secret(keys: Keys) -> None:
    keys.new("--role", "client")
    old = keys.directory.server_key_pairs()[0]
    keys.run("rotate")
    new = keys.directory.server_key_pairs()[0]
    code, text, errors = keys.run("show")

    assert (code, errors) == (0, "")
    assert re.split(r" {2,}|\n", text.strip()) == [
        *("folder", keys.directory.path),
        *("server key", encode_key(new.public)),
        *("old server key", encode_key(old.public)),
        *("owner", fingerprint(keys.directory.owner().keys.public)),
        *("authorized", "2"),
    ]
    for secret in texts_of_secrets(old.secret, new.secret):
        assert secret not in text


@pytest.mark.parametrize("arguments", [["list"], ["show"], ["rotate"], ["rotate", "--forget-old"], ["revoke", "x"]])
def test_before_there_are_keys_an_error_says_how_to_make_them(keys: Keys, arguments: List[str]) -> None:
    code, text, errors = keys.run(*arguments)

    assert (code, text) == (1, "")
    assert (
        f"there are no keys in {keys.directory.path} yet: start a scheduler, or make a key: scaler keys new" in errors
    )
    assert os.listdir(keys.home) == []


# revoke, rotate


def test_a_revoked_key_is_not_admitted_any_more(keys: Keys) -> None:
    files = [keys.new("--role", "client", "--name", name) for name in ("a", "b", "c")]
    for arguments in (["a"], [fingerprint(files[1].keys.public)], ["--", encode_key(files[2].keys.public)]):
        code, text, told = keys.run("revoke", *arguments)
        assert code == 0 and re.match(r"revoked [abc] \(role client, tenant default, ", text), told
        assert "reads its keys again when it gets SIGHUP" in told

    assert [grant.name for grant in keys.directory.allow_list().grants.values()] == ["owner"]
    code, _, errors = keys.run("revoke", "a")
    assert code == 1 and "no authorized key has this name, text or fingerprint: 'a'" in errors


def test_a_server_key_is_replaced_with_overlap(keys: Keys) -> None:
    before = keys.new("--role", "client")
    code, text, told = keys.run("rotate")
    during = keys.new("--role", "client")
    assert code == 0 and text == f"new server key: {encode_key(during.server_keys[0])}\n"
    assert "The old ones stay valid until: scaler keys rotate --forget-old" in told
    assert during.server_keys[1:] == before.server_keys

    code, text, _ = keys.run("rotate", "--forget-old")
    assert code == 0 and text.startswith("removed 1 old server key;")
    assert keys.new("--role", "client").server_keys == during.server_keys[:1]


# Schedulers that run


@pytest.fixture
def scheduler(keys: Keys) -> Iterator[subprocess.Popen[str]]:
    """A process that announces the folder of keys, and says when it gets SIGHUP."""
    arguments = [sys.executable, "-c", SCHEDULER, "tcp://127.0.0.1:4711", keys.directory.path]
    with subprocess.Popen(
        arguments, env=keys.environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "runs\n"
        yield process
        process.kill()


def test_running_schedulers_read_their_keys_again_after_each_change(
    keys: Keys, scheduler: subprocess.Popen[str]
) -> None:
    assert scheduler.stdout is not None
    changes = (["new", "--role", "client"], ["revoke", "client-1"], ["rotate"], ["rotate", "--forget-old"], ["reload"])
    for arguments in changes:
        code, _, told = keys.run_process(*arguments)
        assert code == 0 and "Told the scheduler at tcp://127.0.0.1:4711 to read its keys again." in told
        assert scheduler.stdout.readline() == "reloads\n"


def test_schedulers_are_left_alone_if_asked_to_and_if_their_keys_are_elsewhere(
    keys: Keys, scheduler: subprocess.Popen[str]
) -> None:
    for arguments in (["--no-reload"], ["--directory", str(keys.home / "other")]):
        code, _, told = keys.run("new", "--role", "client", *arguments)
        assert code == 0 and "when it gets SIGHUP: kill -HUP PROCESS_ID" in told and "Told" not in told
    assert scheduler.stdin is not None
    scheduler.stdin.close()
    assert scheduler.stdout is not None
    assert scheduler.stdout.read() == ""


def test_a_reload_that_no_scheduler_hears_is_an_error(keys: Keys) -> None:
    keys.run("new", "--role", "client")
    code, _, told = keys.run("reload")
    assert code == 1 and "No scheduler that uses this folder was found on this host." in told


def test_a_scheduler_without_keys_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    signalled: List[int] = []
    monkeypatch.setattr(os, "kill", lambda process, _: signalled.append(process))
    monkeypatch.setenv("SCALER_RUN_DIRECTORY", str(tmp_path / "run"))
    monkeypatch.chdir(tmp_path)

    with Announcement("scheduler", "tcp://127.0.0.1:4711"):
        assert command.reload_schedulers(str(tmp_path)) == []
    with Announcement("scheduler", "tcp://127.0.0.1:4711", key_directory=str(tmp_path)):
        assert command.reload_schedulers(str(tmp_path)) == ["tcp://127.0.0.1:4711"]
    assert signalled == [os.getpid()]


# Help


def test_without_a_command_the_help_lists_them(keys: Keys) -> None:
    code, text, told = keys.run()
    assert (code, text) == (2, "")
    _, help_text, _ = keys.run("-h")
    assert told == help_text
    for word in COMMANDS:
        assert re.search(rf"^  {word} ", help_text, re.MULTILINE)


@pytest.mark.parametrize("word", COMMANDS)
def test_each_command_explains_itself(keys: Keys, word: str) -> None:
    code, text, _ = keys.run(word, "-h")
    assert code == 0 and "SCALER_KEY_DIRECTORY" in text
    assert max(map(len, text.splitlines())) <= 120


def test_a_misspelt_command_is_an_error_that_lists_the_commands(keys: Keys) -> None:
    code, _, errors = keys.run("nwe")
    assert code == 2 and "invalid choice: 'nwe'" in errors and "revoke" in errors
