"""The single file with PyPy in it: `make dist-pypy` makes it, and it runs where there is nothing.

Rules: without PyPy or a tool to build it, all of this is skipped. Tests that are not about unpacking share one unpacked
copy.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from importlib.metadata import distribution
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List

import pytest
from empty_root import SHELL, EmptyRoot
from packaged import (
    EARLIER_NAMES,
    assert_finds_itself_sound,
    assert_reads_files,
    assert_serves_with_keys,
    assert_watches,
)
from pypy_file import (
    BUILD,
    DEADLINE_SECONDS,
    EXIT_CODE_MISSING_TOOL,
    FILE,
    NOBODY,
    SYSTEMS,
    TREE,
    WORK,
    another_user,
    assert_serves_outside,
    build,
    build_again,
    check_ran_from,
    command_in,
    copies,
    run,
    run_with_mount,
    user_id,
    wait_for_address,
)

from scaler import Client, SchedulerClusterCombo

MOST_SYSTEM_CALLS = 40
PROGRAMS = sorted(
    entry.name for entry in distribution("scaler-appliance").entry_points if entry.group == "console_scripts"
)

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.fixture(scope="session")
def unpacked(one_file: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache with a copy in it."""
    cache = tmp_path_factory.mktemp("unpacked")
    run(one_file, "--version", SCALER_CACHE_HOME=str(cache)).check_returncode()
    return cache


@pytest.fixture
def home(one_file: Path) -> Iterator[Path]:
    """The home of a user who is not root, empty but for a copy of the file."""
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        shutil.copy(one_file, home)
        home.chmod(0o755)
        if os.geteuid() == 0:
            os.chown(home, NOBODY, NOBODY)
        yield home
        home.chmod(0o755)


# As users have it -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("system", [pytest.param(each, id=name) for name, each in SYSTEMS.items()])
def test_on_any_linux_it_serves_a_client_and_workers_outside(
    system: Dict[str, Any], one_file: Path, empty_root: EmptyRoot
) -> None:
    command = command_in(empty_root, one_file, **system)
    assert_serves_outside(command)
    said = assert_finds_itself_sound(command)
    assert said.startswith("unpacked: ") and "pyzmq.libs/libsodium" in said


def test_a_later_start_in_an_empty_root_unpacks_nothing(one_file: Path, empty_root: EmptyRoot) -> None:
    empty_root.add(one_file, "/scaler_scheduler")
    assert "unpacking, this once, to /root/.cache/scaler/" in empty_root.run("/scaler_scheduler", "--version").stderr
    again = empty_root.run("/scaler_scheduler", "--version")
    assert (again.returncode, again.stderr) == (0, "")


def test_without_name_services_an_unknown_name_is_an_error_that_says_so(one_file: Path, empty_root: EmptyRoot) -> None:
    empty_root.add(one_file, "/scaler_scheduler")
    finished = empty_root.run("/scaler_scheduler", "tcp://no-such-host.example:1")
    assert finished.returncode == 1
    assert "cannot listen at tcp://no-such-host.example:1: Temporary failure in name resolution" in finished.stderr


def test_names_of_the_hosts_file_are_found(one_file: Path, empty_root: EmptyRoot) -> None:
    empty_root.add(one_file, "/scaler_scheduler")
    empty_root.outside("/etc").mkdir()
    empty_root.outside("/etc/hosts").write_text("127.0.0.1 here.example\n")
    with empty_root.start("/scaler_scheduler", "tcp://here.example:0", stdout=subprocess.PIPE) as scheduler:
        assert wait_for_address(scheduler)
        scheduler.terminate()


def test_the_version_names_all_parts(one_file: Path, unpacked: Path) -> None:
    output = run(one_file, "--version", SCALER_CACHE_HOME=str(unpacked)).stdout
    for part in ("scaler_scheduler 0.", ", protocol 1.0-1.", ", PyPy 7.", " (Python 3.", ", libzmq 4."):
        assert part in output


def test_a_local_cluster_can_have_it_as_its_scheduler(
    one_file: Path, unpacked: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SCALER_SCHEDULER", str(one_file))
    monkeypatch.setenv("SCALER_CACHE_HOME", str(unpacked))
    with SchedulerClusterCombo(n_workers=1, logging_level="WARNING") as cluster:
        with Client(address=cluster.get_address()) as client:
            assert client.submit(pow, 2, 10).result() == 1024


def test_alone_in_an_empty_root_its_connections_have_keys(
    one_file: Path, empty_root: EmptyRoot, tmp_path: Path
) -> None:
    empty_root.add(one_file, "/scaler_scheduler")
    keys = "/root/keys"
    assert_serves_with_keys(
        *(empty_root.command("/scaler_scheduler"), {"HOME": "/root"}, Path(sys.executable), tmp_path),
        *(keys, empty_root.outside(keys)),
    )


# One file, several programs -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", PROGRAMS)
def test_each_program_of_the_appliance_runs_under_its_name(
    name: str, one_file: Path, unpacked: Path, tmp_path: Path
) -> None:
    (tmp_path / name).symlink_to(one_file)
    finished = run(tmp_path / name, "--version", SCALER_CACHE_HOME=str(unpacked))
    assert finished.returncode == 0 and finished.stdout.startswith(f"{EARLIER_NAMES.get(name, name)} ")


def test_its_monitors_watch_its_scheduler(one_file: Path, unpacked: Path, tmp_path: Path) -> None:
    assert_watches(one_file, tmp_path, {"SCALER_CACHE_HOME": str(unpacked)})


def test_each_program_has_a_link_beside_the_file(one_file: Path) -> None:
    links = {path.name for path in one_file.parent.iterdir() if path.is_symlink() and path.resolve() == one_file}
    assert links == set(PROGRAMS) - {one_file.name}


def test_it_reads_a_file_of_options(one_file: Path, unpacked: Path, tmp_path: Path) -> None:
    assert_reads_files([str(one_file)], {"SCALER_CACHE_HOME": str(unpacked)}, tmp_path / "scaler.toml")


@pytest.mark.parametrize("name", ["scaler_unheard_of", "scheduler-0.1.0-x86_64", "scaler_", ".."])
def test_under_any_other_name_it_is_the_scheduler(name: str, one_file: Path, unpacked: Path) -> None:
    finished = subprocess.run(
        [name, "--version"],
        executable=one_file,
        env={"SCALER_CACHE_HOME": str(unpacked)},
        capture_output=True,
        text=True,
    )
    assert finished.stdout.startswith("scaler_scheduler ")


# As a process ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "arguments, code", [(["--no-such-flag"], 2), (["nonsense"], 2), (["tcp://192.0.2.1:1"], 1), (["-h"], 0)]
)
def test_exit_codes_are_the_programs(arguments: List[str], code: int, one_file: Path, unpacked: Path) -> None:
    finished = run(one_file, *arguments, SCALER_CACHE_HOME=str(unpacked))
    assert finished.returncode == code
    assert bool(finished.stderr) == (code != 0)


def test_the_process_is_the_program(one_file: Path, unpacked: Path) -> None:
    environment = {"SCALER_CACHE_HOME": str(unpacked), "FLAVOUR": "vanilla"}
    with subprocess.Popen(
        [str(one_file), "tcp://127.0.0.1:0", "--exit-when-stdin-closes"],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as scheduler:
        wait_for_address(scheduler)
        process = Path(f"/proc/{scheduler.pid}")
        assert process.joinpath("comm").read_text().strip() == "scaler_scheduler"[:15]
        assert process.joinpath("cmdline").read_text().split("\0")[-3:-1] == [
            "tcp://127.0.0.1:0",
            "--exit-when-stdin-closes",
        ]
        variables = dict(line.split("=", 1) for line in process.joinpath("environ").read_text().split("\0") if line)
        own = {"PYPY_GC_NURSERY": "16M", "LC_CTYPE": "C.UTF-8", "LOCPATH": variables["LOCPATH"]}
        assert variables == {**environment, **own}
        scheduler.communicate()  # closes its standard input
        assert scheduler.returncode == 0


def test_a_signal_that_kills_is_seen(one_file: Path, unpacked: Path) -> None:
    with subprocess.Popen(
        [str(one_file), "tcp://127.0.0.1:0"],
        env={"SCALER_CACHE_HOME": str(unpacked)},
        stdout=subprocess.PIPE,
        text=True,
    ) as scheduler:
        wait_for_address(scheduler)
        scheduler.send_signal(signal.SIGQUIT)
        assert scheduler.wait(DEADLINE_SECONDS) == -signal.SIGQUIT


def test_what_the_user_has_set_for_python_does_not_get_in(one_file: Path, unpacked: Path, tmp_path: Path) -> None:
    for module in ("json", "zmq", "scaler_appliance", "sitecustomize", "usercustomize"):
        (tmp_path / f"{module}.py").write_text("raise SystemExit('not this one')")
    for library in ("libffi.so.8", "libpypy3.9-c.so", "libz.so.1", "libzmq.so.5"):
        (tmp_path / library).write_text("no library")
    finished = run(
        one_file,
        "--version",
        SCALER_CACHE_HOME=str(unpacked),
        PYTHONHOME=str(tmp_path),
        PYTHONPATH=str(tmp_path),
        PYTHONSTARTUP=str(tmp_path / "json.py"),
        PYTHONDONTWRITEBYTECODE="1",
        LD_LIBRARY_PATH=str(tmp_path),
    )
    assert finished.returncode == 0, finished.stderr
    assert "PyPy" in finished.stdout


def test_a_later_start_is_few_system_calls(one_file: Path, unpacked: Path, tmp_path: Path) -> None:
    if shutil.which("strace") is None:
        pytest.skip("there is no strace here to count system calls with")
    trace = tmp_path / "trace"
    traced = subprocess.run(
        ["strace", "-o", str(trace), str(one_file), "--version"],
        env={**os.environ, "SCALER_CACHE_HOME": str(unpacked)},
        capture_output=True,
        text=True,
    )
    if traced.returncode:
        pytest.skip(f"strace does not work here: {traced.stderr.strip()}")
    calls = trace.read_text().splitlines()
    programs = [index for index, call in enumerate(calls) if call.startswith("execve(")]
    assert len(programs) == 2  # itself and PyPy; PyPy is not started twice to set the size of its young generation
    assert programs[1] < MOST_SYSTEM_CALLS


# Where it unpacks to --------------------------------------------------------------------------------------------------


def test_the_cache_is_where_the_user_wants_it(home: Path) -> None:
    places = {"SCALER_CACHE_HOME": home / "own", "XDG_CACHE_HOME": home / "xdg/scaler", "HOME": home / ".cache/scaler"}
    environment = {
        "SCALER_CACHE_HOME": str(home / "own"),
        "XDG_CACHE_HOME": str(home / "xdg"),
        "HOME": str(home),
        "TMPDIR": "/nonexistent",
    }
    for variable, cache in places.items():
        check_ran_from(run(home / "scaler_scheduler", "--version", as_user=True, **environment), cache)
        del environment[variable]


def test_a_home_that_cannot_be_written_to(home: Path) -> None:
    temporary = home / "tmp"
    temporary.mkdir()
    temporary.chmod(0o1777)
    home.chmod(0o555)
    finished = run(home / "scaler_scheduler", "--version", as_user=True, HOME=str(home), TMPDIR=str(temporary))
    private = temporary / f"scaler-{user_id()}"
    check_ran_from(finished, private)
    assert private.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("environment", [{}, {"HOME": "/nonexistent"}, {"HOME": "relative"}])
def test_no_home(environment: Dict[str, str], home: Path) -> None:
    finished = run(home / "scaler_scheduler", "--version", as_user=True, TMPDIR=str(home), **environment)
    check_ran_from(finished, home / f"scaler-{user_id()}")


def test_root_leaves_nothing_in_the_home_of_another(home: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can be in the home of another")
    temporary = home / "tmp"
    temporary.mkdir()
    finished = run(home / "scaler_scheduler", "--version", HOME=str(home), TMPDIR=str(temporary))
    check_ran_from(finished, temporary / "scaler-0")
    assert not (home / ".cache").exists()


def planted_open_to_all(place: Path) -> None:
    place.mkdir()
    place.chmod(0o777)


def planted_link(place: Path) -> None:
    elsewhere = place.with_name("elsewhere")
    elsewhere.mkdir()
    place.symlink_to(elsewhere.name)


def planted_by_another(place: Path) -> None:
    place.mkdir(mode=0o700)
    try:
        os.chown(place, NOBODY, NOBODY)
    except PermissionError:
        pytest.skip("only root can give a folder to another")


@pytest.mark.parametrize("plant", [planted_open_to_all, planted_link, planted_by_another])
def test_nothing_runs_from_a_folder_that_others_can_write_to(
    plant: Callable[[Path], None], one_file: Path, empty_root: EmptyRoot
) -> None:
    empty_root.add(one_file, "/scaler_scheduler")
    plant(empty_root.outside("/tmp/scaler-0"))
    finished = empty_root.run("/scaler_scheduler", "--version", env={"HOME": "/nonexistent"})
    assert finished.returncode == 1
    assert re.search("/tmp/scaler-0: is (another user's, or others may write to it|not a folder)\n", finished.stderr)
    assert "/nonexistent: No such file or directory\n" in finished.stderr
    assert "Set SCALER_CACHE_HOME to a folder of yours with " in finished.stderr


def test_a_home_that_no_program_runs_from(one_file: Path, tmp_path: Path) -> None:
    for name in ("home", "tmp"):
        (tmp_path / name).mkdir()
    finished = run_with_mount(
        *("noexec,mode=700", tmp_path / "home", str(one_file), "--version"),
        HOME=str(tmp_path / "home"),
        XDG_CACHE_HOME="",
        TMPDIR=str(tmp_path / "tmp"),
    )
    check_ran_from(finished, tmp_path / f"tmp/scaler-{os.geteuid()}")


@pytest.mark.parametrize("limit", ["size=20m", "nr_inodes=50"])
def test_a_full_disk(limit: str, one_file: Path, c_library_root: EmptyRoot) -> None:
    c_library_root.add(one_file, "/scaler_scheduler")
    finished = run_with_mount(
        *(f"{limit},mode=1777", c_library_root.outside("/tmp"), "chroot", str(c_library_root.folder)),
        *(SHELL, "-c", "/scaler_scheduler --version; code=$?; echo /tmp/scaler-0/*; exit $code"),
        HOME="/nonexistent",
    )
    assert finished.returncode == 1
    assert "/tmp/scaler-0: No space left on device\n" in finished.stderr
    assert "Set SCALER_CACHE_HOME to a folder of yours with " in finished.stderr
    assert finished.stdout == "/tmp/scaler-0/*\n"  # nothing half-unpacked is left there


# Damage ---------------------------------------------------------------------------------------------------------------


def cut_the_largest_library(copy: Path) -> None:
    os.truncate(next(copy.glob("bin/libpypy*")), 1000)


def remove_the_interpreter(copy: Path) -> None:
    copy.joinpath("bin/pypy3").unlink()


def empty_the_interpreter(copy: Path) -> None:
    os.truncate(copy / "bin/pypy3", 0)


def empty_the_loader(copy: Path) -> None:
    os.truncate(next(copy.glob("bin/ld-linux*")), 0)


def remove_the_seal(copy: Path) -> None:
    copy.joinpath("complete").unlink()


def test_a_damaged_copy_is_unpacked_again(home: Path) -> None:
    file, cache = home / "scaler_scheduler", home / ".cache/scaler"
    check_ran_from(run(file, "--version", as_user=True, HOME=str(home)), cache)
    damages = (
        cut_the_largest_library,
        remove_the_interpreter,
        empty_the_interpreter,
        empty_the_loader,
        remove_the_seal,
    )
    for damage in damages:
        damage(copies(cache)[0])
        check_ran_from(run(file, "--version", as_user=True, HOME=str(home)), cache)
    assert run(file, "--version", as_user=True, HOME=str(home)).stderr == ""


def overwrite(path: Path, offset: int, content: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(offset)
        file.write(content)


def test_a_copy_that_lost_modules_says_so_and_is_given_up(home: Path) -> None:
    file, cache = home / "scaler_scheduler", home / ".cache/scaler"
    damages: List[Callable[[Path], None]] = [
        Path.unlink,
        lambda modules: os.truncate(modules, 0),
        lambda modules: os.truncate(modules, modules.stat().st_size // 2),
        lambda modules: overwrite(modules, 0, b"\xff" * 8),
        lambda modules: overwrite(modules, modules.stat().st_size // 4, bytes(modules.stat().st_size // 2)),
    ]
    for damage in damages:
        check_ran_from(run(file, "--version", as_user=True, HOME=str(home)), cache)
        [modules] = copies(cache)[0].glob("lib/*/modules")
        damage(modules)
        finished = run(file, "tcp://127.0.0.1:0", as_user=True, HOME=str(home))
        assert finished.returncode == 1, finished.stderr
        assert "is damaged; start scaler_scheduler again to unpack it again" in finished.stderr
        assert not (copies(cache)[0] / "complete").exists()


def test_the_self_test_finds_what_a_copy_has_lost_and_the_next_start_has_a_new_one(home: Path) -> None:
    file, cache = home / "scaler_scheduler", home / ".cache/scaler"
    check_ran_from(run(file, "--version", as_user=True, HOME=str(home)), cache)
    [library] = copies(cache)[0].glob("lib/*/pyzmq.libs/libsodium*")
    library.unlink()
    [modules] = copies(cache)[0].glob("lib/*/modules")
    modules.write_bytes(modules.read_bytes().replace(b"CURVE", b"CVRVE"))
    finished = run(file, "--self-test", as_user=True, HOME=str(home))
    assert finished.returncode == 1
    assert "/modules is missing or was changed, and 1 more: what was unpacked to" in finished.stderr
    assert finished.stderr.endswith(" is damaged; start scaler_scheduler again to unpack it again\n")
    finished = run(file, "--self-test", as_user=True, HOME=str(home))
    assert finished.returncode == 0, finished.stderr
    assert finished.stdout.startswith("unpacked: ") and finished.stdout.endswith("\nok\n")


def test_what_a_killed_start_has_left_half_unpacked_is_not_run_and_goes(home: Path) -> None:
    with subprocess.Popen(
        [str(home / "scaler_scheduler"), "--version"],
        env={"HOME": str(home)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        **another_user(),
    ) as first:
        assert first.stderr is not None and b"unpacking" in first.stderr.readline()
        first.kill()
    cache = home / ".cache/scaler"
    others = cache / "0123456789abcdef0123456789abcdef.XXXXXX"
    others.mkdir()
    finished = run(home / "scaler_scheduler", "--version", as_user=True, HOME=str(home))
    assert finished.returncode == 0, finished.stderr
    assert others.exists()  # what is not of this file stays
    others.rmdir()
    assert len(copies(cache)) == 1


@pytest.mark.parametrize("damage", ["cut", "changed"])
def test_a_damaged_download_says_so(damage: str, home: Path) -> None:
    file = home / "scaler_scheduler"
    if damage == "cut":
        os.truncate(file, file.stat().st_size - 100_000)
    else:
        with file.open("r+b") as opened:
            opened.seek(file.stat().st_size // 2)
            opened.write(b"damaged!")
    finished = run(file, "--version", as_user=True, HOME=str(home))
    assert finished.returncode == 1
    assert "download or copy it again" in finished.stderr
    assert damage == "cut" or copies(home / ".cache/scaler") == []


# How it is made -------------------------------------------------------------------------------------------------------


@pytest.mark.exhaustive  # half a minute of two processors
def test_a_second_build_in_another_folder_gives_the_same_bytes(one_file: Path, tmp_path: Path) -> None:
    assert build_again(tmp_path, WORK).read_bytes() == one_file.read_bytes()


def test_nothing_is_built_when_nothing_has_changed(one_file: Path) -> None:
    before = one_file.stat()
    build(BUILD, WORK, FILE)
    assert one_file.stat() == before


def test_no_path_of_the_builder_is_in_it(one_file: Path) -> None:
    content = one_file.read_bytes()
    trailer = dict(line.split(" ", 1) for line in content[-512:].decode().split("\n") if " " in line)
    offset = int(trailer["offset"])
    assert str(TREE).encode() not in content[:offset]
    archive = subprocess.run(["zstd", "-dc"], input=content[offset:-512], capture_output=True, check=True).stdout
    assert str(TREE).encode() not in archive


def test_the_terms_of_all_its_libraries_are_in_it_and_no_others(unpacked: Path) -> None:
    [copy] = copies(unpacked)
    licenses = {path.name for path in (copy / "licenses").iterdir()}
    if "pypy3" not in licenses:
        pytest.skip("not made of Debian's packages")
    assert {"libc6", "libgcc-s1", "libstdc++6", "libffi8", "zlib1g", "pyzmq", "scaler", "sources"} <= licenses
    assert "pypy" not in licenses  # a portable one's, or that of something else beside Debian's


def test_without_pypy_the_build_says_what_to_do(tmp_path: Path) -> None:
    finished = subprocess.run(
        [sys.executable, str(BUILD), "--pypy", str(tmp_path / "pypy3")], capture_output=True, text=True
    )
    assert finished.returncode == EXIT_CODE_MISSING_TOOL
    assert "PYPY_HOME=" in finished.stderr and "apt-get install pypy3" in finished.stderr
