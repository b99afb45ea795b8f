"""The flake evaluates, builds and runs, with a stand-in for nixpkgs that is made from this host's programs.

Rules:
- The network is used only for PyPy's wheels, by pip, and no files remain: store, state and cache are in a temporary
  folder. The build uses the files tracked by git, including changes.
- Without Nix, or without a PyPy to stand in, these tests are skipped with a message.
- packaging/nix/README.md says what the tests show.
"""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Iterator, List

import pytest

TREE = Path(__file__).resolve().parents[2]
PYPY = TREE / ".venv-pypy/bin/pypy3"
SYSTEM = f"{platform.machine()}-linux"
TIME_LIMIT_SECONDS = 300

pytestmark = [pytest.mark.slow, pytest.mark.timeout(TIME_LIMIT_SECONDS + 60)]


class Flake:
    """A copy of this tree, and Nix with a store of its own."""

    def __init__(self, folder: Path) -> None:
        self.tree, self._stand_in = folder / "tree", folder / "stand-in"
        store = folder / "nix"
        options = {"sandbox": "false", "build-users-group": "", "substituters": "", "connect-timeout": "1"}
        self._environment = {
            **os.environ,
            "NIX_REMOTE": f"local?store={store}/store&state={store}/state&log={store}/log",
            "NIX_CONFIG": "".join(f"{name} = {value}\n" for name, value in options.items())
            + "experimental-features = nix-command flakes\n",
            "XDG_CACHE_HOME": str(folder / "cache"),
        }
        subprocess.run(
            [sys.executable, str(TREE / "packaging/nix/stand-in/prepare.py"), str(self._stand_in), str(PYPY)],
            check=True,
            env=self._environment,
        )
        names = subprocess.run(
            ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
            cwd=TREE,
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for name in filter(None, names.split("\0")):
            if (TREE / name).is_file():
                target = self.tree / name
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(TREE / name, target)

    def command(self, *words: str, part: str = "") -> List[str]:
        """Of Nix, on this flake or a part of it."""
        with_stand_in = ["--offline", "--no-write-lock-file", "--override-input", "nixpkgs", f"path:{self._stand_in}"]
        return ["nix", *words, f"path:{self.tree}{part}", *with_stand_in]

    def run(self, command: List[str]) -> str:
        finished = subprocess.run(
            command,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=TIME_LIMIT_SECONDS,
        )
        assert finished.returncode == 0, finished.stdout + finished.stderr
        return finished.stdout


@pytest.fixture(scope="module")
def flake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Flake]:
    if shutil.which("nix") is None:
        pytest.skip("no Nix here (Debian: apt-get install nix-bin)")
    if not (TREE / ".venv-pypy/.packages").exists():
        pytest.skip("no PyPy here to stand in for nixpkgs' (make test says why)")
    if not (TREE / ".git").exists():
        pytest.skip("this tree is not a git clone, so the files of the flake are unknown")
    folder = tmp_path_factory.mktemp("flake")
    yield Flake(folder)
    for path in (folder / "nix").rglob("*"):  # a store is read-only
        if path.is_dir() and not path.is_symlink():
            path.chmod(0o700)
    shutil.rmtree(folder, ignore_errors=True)


def test_all_checks_of_the_flake_pass(flake: Flake) -> None:
    flake.run(flake.command("flake", "check"))


@pytest.mark.parametrize(
    ("part", "value"),
    [("packages", "drvPath"), ("checks", "drvPath"), ("devShells", "drvPath"), ("apps", "program")],
)
def test_it_evaluates_for_all_systems(flake: Flake, part: str, value: str) -> None:
    """To derivations, which are built where such a machine is."""
    every = f"builtins.mapAttrs (_: builtins.mapAttrs (_: each: each.{value}))"
    systems = json.loads(flake.run([*flake.command("eval", part=f"#{part}"), "--json", "--apply", every]))

    assert set(systems) == {"x86_64-linux", "aarch64-linux"}
    x86_64, aarch64 = systems.values()
    assert set(x86_64) == set(aarch64) and not set(x86_64.values()) & set(aarch64.values())


def test_nix_run_starts_a_scheduler_that_serves(flake: Flake) -> None:
    """By the client and the workers of this tree's environment; it ends by SIGTERM, with 0."""
    run = [*flake.command("run", part="#scaler_scheduler"), "--"]
    cluster = Path(sys.executable).with_name("scaler_cluster")

    output = flake.run([sys.executable, str(TREE / "packaging/nix/serve.py"), " ".join(run), str(cluster)])

    assert "served 1001 tasks" in output


def test_the_image_starts_the_scheduler_without_privileges(flake: Flake, tmp_path: Path) -> None:
    flake.run(flake.command("build", "--out-link", str(tmp_path / "image"), part="#image"))
    config = json.loads((tmp_path / "image").read_text())

    assert config["Entrypoint"][0].endswith("/bin/scaler_scheduler")
    assert config["User"].split(":")[0] != "0"
    (volume,) = config["Volumes"]
    assert config["Env"] == [f"SCALER_KEY_DIRECTORY={volume}/keys"], "keys stay when the container goes"


def test_programs_that_the_appliance_gains_are_in_the_flake(flake: Flake) -> None:
    def programs() -> List[str]:
        expression = ["--json", "--apply", "builtins.attrNames"]
        return list(json.loads(flake.run([*flake.command("eval", part=f"#apps.{SYSTEM}"), *expression])))

    assert {"default", "scaler_scheduler", "scaler_scheduler-cpython"} <= set(programs())
    pyproject = flake.tree / "appliance/pyproject.toml"
    text = pyproject.read_text()
    gained = text.replace("[project.scripts]\n", '[project.scripts]\nscaler_gained = "scaler_appliance.gained:main"\n')
    pyproject.write_text(gained)
    try:
        assert "scaler_gained" in programs()
    finally:
        pyproject.write_text(text)
