"""The commands of the documentation run: those of each page in their order, on machines as their reader has them.

Rules:
- All ```bash and ```console fences run but those in NOT_RUN, with the reason. Programs that serve are left running, and
  end with 0 at Ctrl-C: page_machines.py says how. A program that no machine of tests has is a stand-in that checks its
  arguments: page_stand_ins.py.
- The address 192.0.2.1 is the machine `a`, on which commands run. `<!-- example: on b, c -->` above a fence: each of
  its commands runs on b, and on c; or it is a program in Python that runs there. A comment `# on the host b` says it of
  one command.
- `<!-- example: file NAME -->` above a fence: its text is this file, before any command of the page runs.
- `<!-- example: output -->` below such a fence: what its commands write, but for times and fingerprints.
- `<!-- example: log -->` above a fence: programs of the page have written each of its lines, but for times and numbers.
- What a reader has beside the page is in BEFORE: programs that run, files that are there.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Dict, List, Tuple

import page_machines
import pytest
from page_fences import FENCES, SHELLS, TREE, Fence
from page_machines import Step

TIME_LIMIT_SECONDS = 120
NEEDED = ("bash", "curl", "ip", "jq", "nsenter", "openssl", "pkill", "script", "unshare")
CHANGING = re.compile(r"[0-9a-f]{4}(?:-[0-9a-f]{4}){3}|\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")
HOST = re.compile(r"# on the host (\w+)")

OF_A_RELEASE = "checks a signature of a published release against services on the internet"
OF_NIX = "needs nix and its store: test_nix.py checks the flake with what nix is here"
NOT_RUN: Dict[Tuple[str, str], str] = {
    ("conformance-tests/README.md", "pip"): "runs all cases for minutes: conformance-tests/tests run them",
    ("packaging/README.md", "gh"): OF_A_RELEASE,
    ("packaging/README.md", "cosign"): OF_A_RELEASE,
    ("packaging/README.md", "sigstore"): OF_A_RELEASE,
    ("packaging/README.md", "git"): "clones from GitHub and builds for minutes: packaging/tests build the forms",
    ("packaging/nix/README.md", "nix"): OF_NIX,
    ("packaging/nix/README.md", ".venv/bin/python"): OF_NIX,
}
"""Fences that no test runs, by page and first program, and why."""

SCHEDULER = "scaler_scheduler tcp://0.0.0.0:2345"
UNITS = [
    "install -m 644 packaging/systemd/*.service /etc/systemd/system/",
    "ln -s $PWD/.venv/bin/scaler* /usr/local/bin/",
]
FROM_USER_DATA = """python -c "
import pathlib, yaml
for each in yaml.safe_load(open('packaging/cloud-init/{}'))['write_files']:
    path = pathlib.Path(each['path'])
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(each['content'])
    path.chmod(int(each['permissions'], 8))
" # on the host {}"""
CLOUD_MACHINES = [
    FROM_USER_DATA.format("scheduler.yaml", "a"),
    FROM_USER_DATA.format("workers.yaml", "b"),
    "ln -s $PWD/.venv/bin/scaler_cluster /usr/local/bin/ # on the host b",
]
NOTICE = "latest/meta-data/spot/instance-action"

BEFORE: Dict[str, List[str]] = {
    "docs/configuration.md": [
        "mkdir -p ~/.local/share/bash-completion/completions ~/.zsh/completions ~/.config/fish/completions"
    ],
    "docs/how-to/limit-memory.md": [SCHEDULER],
    "docs/how-to/run-as-a-service.md": CLOUD_MACHINES,
    "docs/how-to/run-on-gpus.md": [SCHEDULER],
    "docs/how-to/ship-code.md": [SCHEDULER],
    "docs/how-to/upgrade.md": [*UNITS, SCHEDULER, "scaler_cluster -n 1 -wn node7-worker tcp://127.0.0.1:2345"],
    "docs/how-to/workers-that-come-and-go.md": [
        SCHEDULER,
        "mkdir -p /mnt/node7/.config && cp -r .config/scaler /mnt/node7/.config/",
        *(f"scaler_cluster -n 1 -wn {name} tcp://a:2345" for name in ("gpu-node-3", "1042", "1043")),
        "scaler_cluster -n 1 tcp://a:2345 # on the host node7",
        "scaler_ui",
        f"mkdir -p {Path(NOTICE).parent} && touch {NOTICE}",
        "python -m http.server 80 --bind 169.254.169.254 > /dev/null 2>&1 &",
        "until curl -s http://169.254.169.254/ > /dev/null; do :; done",
    ],
    "docs/how-to/secure-a-cluster.md": [SCHEDULER],
    "docs/monitoring.md": ["scaler_scheduler tcp://127.0.0.1:2345"],
    "docs/security.md": [
        """echo 'from scaler import Client
with Client("tcp://127.0.0.1:2345") as client:
    client.info()' > my_program.py"""
    ],
    "packaging/README.md": ["cp .venv/bin/scaler_scheduler ."],
    "packaging/cloud-init/README.md": [*CLOUD_MACHINES, "ln -s $PWD/.venv/bin/scaler_scheduler /usr/local/bin/"],
    "packaging/pypy/README.md": ["cp .venv/bin/scaler_scheduler ."],
    "packaging/systemd/README.md": ["make dist-pypy", "ln -s $PWD/.venv/bin/scaler_[cpu]* /usr/local/bin/"],
}
"""What a reader of a page has beside what it says: programs that run, files that are there."""


def is_command(fence: Fence) -> bool:
    return fence.language in SHELLS or (fence.language == "python" and fence.marker.startswith("on "))


COMMAND_FENCES = [fence for fence in FENCES if is_command(fence)]
PAGES_WITH_COMMANDS = sorted({fence.page for fence in COMMAND_FENCES})


def key_of(fence: Fence) -> Tuple[str, str]:
    if fence.language == "python":
        return fence.place, ""
    return fence.place.rpartition(":")[0], fence.commands[0].split()[0]


def steps_of(page: Path) -> List[Step]:
    """What runs, in this order: files, what is there before, and the commands of the page."""
    fences = [fence for fence in FENCES if fence.page == page]
    steps = [
        Step(fence.place, machines_of(fence), [fence.text], file=fence.marker[len("file ") :])
        for fence in fences
        if fence.marker.startswith("file ")
    ]
    name = str(page.relative_to(TREE))
    steps += [Step(f"{name}, before", machines_for(command, ["a"]), [command]) for command in BEFORE.get(name, [])]
    for fence in fences:
        if is_command(fence) and key_of(fence) not in NOT_RUN:
            if fence.language == "python":
                steps.append(Step(fence.place, machines_of(fence), [f"python -c {shlex.quote(fence.text)}"]))
            elif fence.language == "bash" and not any(page_machines.readiness(command) for command in fence.commands):
                steps.append(Step(fence.place, machines_of(fence), [fence.text]))
            else:
                for command in fence.commands:
                    steps.append(Step(fence.place, machines_for(command, machines_of(fence)), [command]))
        elif fence.marker == "log":
            steps.append(Step(fence.place, [], [], logged=[line for line in fence.text.splitlines() if line.strip()]))
    return steps


def machines_for(command: str, otherwise: List[str]) -> List[str]:
    named = HOST.search(command)
    return [named[1]] if named else otherwise


def machines_of(fence: Fence) -> List[str]:
    return fence.marker[len("on ") :].split(", ") if fence.marker.startswith("on ") else ["a"]


def why_no_machines() -> str:
    """Why no machine can be made here; empty if they can."""
    missing = [name for name in NEEDED if shutil.which(name) is None]
    if missing:
        return f"there is no {', '.join(missing)}"
    return subprocess.run([*namespaces(), "true"], capture_output=True, text=True).stderr.strip()


def namespaces() -> List[str]:
    mapped = [] if os.geteuid() == 0 else ["--map-root-user"]
    return ["unshare", *mapped, "--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]


@pytest.fixture(scope="module")
def machines_are_possible() -> None:
    if reason := why_no_machines():
        pytest.skip(f"no machines in namespaces here: {reason}")


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES_WITH_COMMANDS, ids=lambda page: str(page.relative_to(TREE)))
def test_commands_of_the_page_run(page: Path, tmp_path: Path, machines_are_possible: None) -> None:
    steps = steps_of(page)
    if not any(step.scripts and not step.file for step in steps):
        return  # all of its fences are in NOT_RUN
    plan = tmp_path / "plan.json"
    machines = sorted({name for step in steps for name in step.machines})
    plan.write_text(json.dumps({"machines": machines, "steps": steps}))
    environment = {name: value for name, value in os.environ.items() if not name.startswith("SCALER_")}
    finished = subprocess.run(
        [*namespaces(), sys.executable, "-SE", page_machines.__file__, str(plan)],
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=TIME_LIMIT_SECONDS,
    )

    assert finished.returncode == 0, finished.stderr
    said = json.loads(finished.stdout)
    assert said["failures"] == [], "\n".join(said["failures"])
    for fence, following in zip(FENCES, FENCES[1:]):
        if fence.place in said["outputs"] and following.marker == "output" and following.page == page:
            written = said["outputs"][fence.place]
            assert changing(written) == changing(following.text)


def changing(output: str) -> List[str]:
    """The lines of an output, without what differs each time."""
    return CHANGING.sub("...", output.replace("/mnt/a/", "/home/you/")).splitlines()


def test_each_fence_that_does_not_run_is_there_and_has_a_reason() -> None:
    assert set(NOT_RUN) <= {key_of(fence) for fence in COMMAND_FENCES}
    assert all(NOT_RUN.values())
