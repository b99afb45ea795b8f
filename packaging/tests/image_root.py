"""The root folder of an image, made as its Containerfile says, and containers of it: no container program is needed.

    image = Image(containerfile, {"dist/pypy/scaler_scheduler": one_file}, EmptyRoot(tmp_path / "root"))
    command = image.container(volume, *image.entrypoint, "tcp://127.0.0.1:0")

Rules:
- Of the instructions, those are understood that an image FROM scratch needs; any other is an error, so that the test of
  an image is not one of something else.
- A container has a read-only root, /proc, an empty /dev/shm and a folder of the host in the place of the volume. It
  runs as the image's user with its variables. Network and processes are the host's.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
from pathlib import Path
from typing import Dict, List, Mapping, Optional, Tuple

from empty_root import EmptyRoot
from pypy_file import TREE, mounted

USUAL = {"HOME": "/"}
NOTED = ("EXPOSE", "STOPSIGNAL")
ROOT_USER = 0


class Image:
    """An image.

    Parameters:
        containerfile: which must begin with FROM scratch.
        files: that stand in for those of the tree, by the names that the Containerfile uses.
        root: an empty root, in which the image is made.
    """

    def __init__(self, containerfile: Path, files: Mapping[str, Path], root: EmptyRoot) -> None:
        self.environment: Dict[str, str] = {}
        self.user = ROOT_USER
        self.entrypoint: List[str] = []
        self.command: List[str] = []
        self.health_check: List[str] = []
        self.volume = ""
        self._root, self._files = root, files
        for name in ("tmp", "root", "bin"):  # there is not even that
            root.outside(name).rmdir()
        root.outside("proc").mkdir()
        instructions = _instructions(containerfile)
        assert instructions.pop(0) == ("FROM", "scratch")
        for instruction, words in instructions:
            if instruction not in NOTED:
                getattr(self, f"_{instruction.lower()}")(words)

    def container(self, volume: Path, *command: str, user: Optional[int] = None) -> List[str]:
        """The command that runs another one in a container.

        Parameters:
            volume: a folder of the host, which gets the content of the image's if it is not there yet.
            user: another than the image's.
        """
        inside = self._root.outside(self.volume)
        if not volume.exists():
            shutil.copytree(inside, volume, copy_function=shutil.copy)
            for path in (volume, *volume.rglob("*")):
                os.chown(path, *_owner(inside / path.relative_to(volume)))
        folder = shlex.quote(str(self._root.folder))
        commands = [
            f"cd {folder}",
            "mount --bind . .",
            f"cd {folder}",
            "mount -o remount,bind,ro .",
            "mount -t proc none proc",
            "mount -t tmpfs -o mode=1777 none dev/shm",
            f"mount --bind {shlex.quote(str(volume))} {shlex.quote(str(inside))}",
        ]
        inner = self._root.command(*command, user=self.user if user is None else user)
        variables = [f"{name}={value}" for name, value in self._variables.items()]
        return mounted(commands, ["env", "-i", *variables, *inner])

    @property
    def _variables(self) -> Dict[str, str]:
        return {**USUAL, **self.environment}

    # Instructions -----------------------------------------------------------------------------------------------------

    def _copy(self, words: str) -> None:
        *options, source, target = words.split()
        modes = dict(option[2:].split("=") for option in options)
        assert set(modes) <= {"chown", "chmod"}, words
        copied, place = self._files.get(source, TREE / source), self._root.outside(target)
        if copied.is_dir():
            paths = [place / path.relative_to(copied) for path in sorted(copied.rglob("*"))]
            shutil.copytree(copied, place, dirs_exist_ok=True)
        else:
            paths = [self._root.add(copied, target)]
        for path in paths:
            owner, _, group = modes.get("chown", "0:0").partition(":")
            os.chown(path, int(owner), int(group))
            path.chmod(int(modes["chmod"], 8) if "chmod" in modes else 0o755 if path.is_dir() else 0o644)

    def _workdir(self, words: str) -> None:
        assert self.user == ROOT_USER, "whose folder it would be depends on the builder"
        self._root.outside(words).mkdir(mode=0o755, parents=True, exist_ok=True)

    def _env(self, words: str) -> None:
        name, _, value = words.partition("=")
        self.environment[name] = value

    def _run(self, words: str) -> None:
        user = None if self.user == ROOT_USER else self.user
        self._root.run(*json.loads(words), user=user, env=self._variables).check_returncode()

    def _user(self, words: str) -> None:
        user, _, group = words.partition(":")
        assert user == group
        self.user = int(user)

    def _volume(self, words: str) -> None:
        assert not self.volume
        self.volume = words

    def _healthcheck(self, words: str) -> None:
        self.health_check = json.loads(words.partition("CMD ")[2])

    def _entrypoint(self, words: str) -> None:
        self.entrypoint = json.loads(words)

    def _cmd(self, words: str) -> None:
        self.command = json.loads(words)


def _instructions(containerfile: Path) -> List[Tuple[str, str]]:
    lines = containerfile.read_text(encoding="utf-8").splitlines()
    parts = [line.partition(" ") for line in lines if line and not line.startswith("#")]
    return [(instruction, words) for instruction, _, words in parts]


def _owner(path: Path) -> Tuple[int, int]:
    status = path.stat()
    return status.st_uid, status.st_gid
