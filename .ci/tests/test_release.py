"""The workflows that test and publish this tree, and the files of a release.

Rules: the workflows run only on GitHub. Here they are parsed, and everything they use is checked: make targets, files,
and the steps that create checksums and a bill of materials. The script that publishes the documentation runs.
"""

from __future__ import annotations

import fnmatch
import hashlib
import json
import re
import shutil
import stat
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any, Dict, Iterator, List, Set

import pytest
import yaml
from release import released_name

TREE = Path(__file__).resolve().parents[2]
WORKFLOWS = sorted((TREE / ".github/workflows").glob("*.yml"))
RELEASE = TREE / ".github/workflows/release.yml"
IMAGES = {path.suffix[1:] for path in (TREE / "packaging/oci").glob("Containerfile.*")}


def read(workflow: Path) -> Dict[Any, Any]:
    document = yaml.safe_load(workflow.read_text(encoding="utf-8"))
    assert isinstance(document, dict)
    return document


def steps_of(workflow: Path) -> Iterator[Dict[str, Any]]:
    for job in read(workflow)["jobs"].values():
        yield from job["steps"]


def scripts_of(workflow: Path) -> str:
    return "\n".join(step["run"] for step in steps_of(workflow) if "run" in step)


def test_there_are_all_workflows() -> None:
    assert [path.name for path in WORKFLOWS] == ["ci.yml", "docs.yml", "release.yml"]
    # YAML reads the word `on` as true.
    assert read(RELEASE)[True] == {"push": {"tags": ["v*"]}}


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.name)
def test_what_a_workflow_makes_can_be_made(workflow: Path) -> None:
    makefile = (TREE / "Makefile").read_text(encoding="utf-8")
    targets = re.findall(r"\bmake ([a-z-]+)", scripts_of(workflow))

    assert targets
    assert [target for target in targets if not re.search(rf"^{target}:", makefile, re.MULTILINE)] == []


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.name)
def test_files_that_a_workflow_names_are_there(workflow: Path) -> None:
    named = re.findall(r"\b(?:packaging|docs)/[\w./-]+", scripts_of(workflow).replace("dist/docs", ""))
    assert [name for name in named if not (TREE / name).exists()] == []


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.name)
def test_actions_are_pinned_to_commits(workflow: Path) -> None:
    lines = [line.strip("- ") for line in workflow.read_text(encoding="utf-8").splitlines() if "uses:" in line]
    pinned = re.compile(r"uses: [\w.-]+/[\w./-]+@[0-9a-f]{40} # v\d+(\.\d+)*")
    assert lines and [line for line in lines if not pinned.fullmatch(line)] == []


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.name)
def test_jobs_end_and_may_do_no_more_than_they_need(workflow: Path) -> None:
    document = read(workflow)
    assert document["permissions"] in ({}, {"contents": "read"})
    assert all(job["timeout-minutes"] <= 90 for job in document["jobs"].values())
    for name, job in document["jobs"].items():
        may_write = {what for what, how in job.get("permissions", {}).items() if how == "write"}
        assert not may_write or "environment" in job, f"{name} has write permissions without an approval"
    # A script with text of the event's in it would run that text.
    assert "${{" not in scripts_of(workflow)
    assert "pull_request_target" not in workflow.read_text(encoding="utf-8")
    checkouts = [step for step in steps_of(workflow) if step.get("uses", "").startswith("actions/checkout@")]
    assert all(step["with"]["persist-credentials"] is False for step in checkouts)


def test_only_the_jobs_that_sign_can_prove_who_they_are() -> None:
    jobs = read(RELEASE)["jobs"]
    assert {name for name, job in jobs.items() if "id-token" in job["permissions"]} == {"images", "publish", "pypi"}
    assert set(jobs["publish"]["needs"]) == {"build", "nix", "reproducible"} and jobs["pypi"]["needs"] == "publish"


def test_what_a_job_downloads_has_been_uploaded_by_one_that_it_needs() -> None:
    jobs = read(RELEASE)["jobs"]

    def artifacts(job: str, action: str) -> List[str]:
        """The names in its steps, one for each machine of its matrix."""
        machines = [row["machine"] for row in jobs[job].get("strategy", {}).get("matrix", {}).get("include", [])]
        steps = [step["with"] for step in jobs[job]["steps"] if step.get("uses", "").startswith(f"actions/{action}@")]
        names = [str(step.get("name", step.get("pattern"))) for step in steps]
        return [name.replace("${{ matrix.machine }}", machine) for name in names for machine in machines or [""]]

    def needed(job: str) -> Set[str]:
        direct = jobs[job].get("needs", [])
        direct = [direct] if isinstance(direct, str) else direct
        return set(direct).union(*(needed(name) for name in direct))

    for job in jobs:
        uploaded = [name for before in needed(job) for name in artifacts(before, "upload-artifact")]
        for wanted in artifacts(job, "download-artifact"):
            assert fnmatch.filter(uploaded, wanted), f"{job} downloads {wanted}"


VERIFICATION = re.compile(r"cosign verify-blob (.+?) SHA256SUMS *(?:&&|$)", re.MULTILINE)


def verification_in(text: str) -> List[str]:
    """How a text verifies the checksums' signature, with the same name for every workflow that is to have signed."""
    (found,) = VERIFICATION.findall(text.replace("\\\n", " "))
    return re.sub(r"--certificate-identity (\S+)", "--certificate-identity WORKFLOW", found).split()


def test_checksums_are_signed_by_the_workflow_and_verified_as_the_documentation_says() -> None:
    steps = read(RELEASE)["jobs"]["publish"]["steps"]
    (signing,) = [step for step in steps if "cosign sign-blob" in step.get("run", "")]
    order = [str(step.get("run", step.get("uses", ""))).split("@")[0].split("\n")[0] for step in steps]
    wanted = ["make checksums", "sigstore/cosign-installer", signing["run"].split("\n")[0]]
    positions = [order.index(one) for one in wanted]
    publishing = next(index for index, script in enumerate(order) if script.startswith("gh release create"))
    assert positions == sorted(positions) and positions[-1] < publishing
    assert order[publishing].endswith(" dist/release/*") and signing["working-directory"] == "dist/release"
    assert "cosign sign-blob --yes --bundle SHA256SUMS.sigstore.json SHA256SUMS\n" in signing["run"]

    page = (TREE / "packaging/README.md").read_text(encoding="utf-8")
    assert verification_in(page) == verification_in(signing["run"])
    identity = "https://github.com/OWNER/REPO/.github/workflows/release.yml@refs/tags/v"
    assert page.count(f"identity {identity}") == 2
    assert signing["env"]["WORKFLOW"] == (
        "${{ github.server_url }}/${{ github.repository }}/.github/workflows/release.yml@${{ github.ref }}"
    )


def test_all_that_is_published_has_its_provenance_attested() -> None:
    jobs = read(RELEASE)["jobs"]
    subjects = {
        name: [step["with"] for step in job["steps"] if "attest-build-provenance@" in step.get("uses", "")]
        for name, job in jobs.items()
    }
    assert subjects.pop("publish") == [{"subject-checksums": "dist/release/SHA256SUMS"}]
    attested = {each["subject-name"].rpartition("/")[2]: each["subject-digest"] for each in subjects.pop("images")}
    assert attested == {f"scaler-{name}": f"${{{{ env.{name} }}}}" for name in IMAGES}
    assert not any(subjects.values())


def test_each_image_that_has_a_recipe_is_built_and_pushed() -> None:
    steps = read(RELEASE)["jobs"]["images"]["steps"]
    script = "\n".join(step.get("run", "") for step in steps)
    (pushed,) = re.findall(r"for name in (.+); do", script)

    assert set(re.findall(r"Containerfile\.(\w+) --tag \"\$registry/scaler-\1:", script)) == IMAGES
    assert set(pushed.split()) == IMAGES


def test_the_single_files_of_a_release_are_built_once_by_debian_for_both_machines() -> None:
    jobs = read(RELEASE)["jobs"]
    scripts = {name: [step.get("run", "") for step in job["steps"]] for name, job in jobs.items()}
    building = {
        name: [line for line in lines if re.search(r"make (dist-pypy|dist\b(?!-))", line)]
        for name, lines in scripts.items()
    }
    assert {name: lines for name, lines in building.items() if lines} == {
        "single-files": ["make dist-pypy", "make dist-pypy MACHINE=aarch64"]
    }
    assert jobs["single-files"]["container"]["image"] == "debian:12"


# The files.

SAID = "scaler_scheduler 9.8.7, protocol 1.0-1.3, PyPy 3.11.11 (7.3.19), libzmq 4.3.5"
SINGLE_FILE = f"""#!/bin/sh
mkdir -p "$SCALER_CACHE_HOME/x/some.dist-info"
printf 'Name: Some_Package\\nVersion: 1.2\\n' > "$SCALER_CACHE_HOME/x/some.dist-info/METADATA"
printf 'machine code' > "$SCALER_CACHE_HOME/x/libsome.so.1"
printf 'other code of the same name' > "$SCALER_CACHE_HOME/libsome.so.1"
echo '{SAID}'
"""


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder as `make dist` leaves it, with a real wheel and source archive, and two programs that are made up."""
    dist = tmp_path_factory.mktemp("release") / "dist"
    (dist / "wheels").mkdir(parents=True)
    build = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(dist / "wheels")]
    subprocess.run([*build, str(TREE / "protocol-spec/python")], check=True, capture_output=True)
    (dist / "wheels/.built").touch()
    program = dist / "pypy/scaler_scheduler"
    program.parent.mkdir()
    program.write_text(SINGLE_FILE)
    pex = dist / "pex/scaler_scheduler.pex"
    pex.parent.mkdir()
    pex.write_bytes(f"#!{sys.executable}\n".encode())
    with zipfile.ZipFile(pex, "a") as archive:
        archive.writestr("__main__.py", f"print({SAID!r})")
        archive.writestr(
            ".deps/pyzmq-9.whl/pyzmq-9.dist-info/METADATA", "Name: pyzmq\nVersion: 9\nLicense: BSD\n\nText"
        )
    for path in (program, pex):
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
    make_release(dist)
    return dist


def make_release(dist: Path) -> None:
    script = "import sys, pathlib, release; d = pathlib.Path(sys.argv[1]); release.collect(d); release.checksums(d)"
    subprocess.run([sys.executable, "-c", script, str(dist)], cwd=TREE / "packaging", check=True)


def bill(dist: Path) -> Dict[str, Any]:
    (path,) = (dist / "release").glob("*.cdx.json")
    document = json.loads(path.read_text())
    assert isinstance(document, dict)
    return document


def parts_of(dist: Path, name: str) -> Set[str]:
    (file,) = [component for component in bill(dist)["components"] if re.fullmatch(name, component["name"])]
    return {f"{part['name']} {part.get('version', '')}".strip() for part in file["components"]}


def test_files_are_named_after_version_form_and_machine(dist: Path) -> None:
    names = " ".join(path.name for path in sorted((dist / "release").iterdir()))
    machine = r"[\w]+-linux"
    assert re.fullmatch(
        rf"SHA256SUMS scaler-[\d.]+-{machine}\.cdx\.json scaler_protocol-\S+\.whl scaler_protocol-\S+\.tar\.gz"
        rf" scaler_scheduler-[\d.]+-pex-{machine}\.pex scaler_scheduler-[\d.]+-{machine}",
        names,
    ), names


@pytest.mark.parametrize(
    ("folder", "number", "released"),
    [
        ("pypy", 62, "scaler_scheduler-1.2-x86_64-linux"),
        ("pypy", 183, "scaler_scheduler-1.2-aarch64-linux"),
        ("pypy-aarch64", 183, "scaler_scheduler-1.2-aarch64-linux"),
        ("nuitka", 183, "scaler_scheduler-1.2-nuitka-aarch64-linux"),
    ],
)
def test_a_program_is_named_after_the_machine_that_it_is_for(
    folder: str, number: int, released: str, tmp_path: Path
) -> None:
    program = tmp_path / folder / "scaler_scheduler"
    program.parent.mkdir()
    program.write_bytes(b"\x7fELF\x02\x01" + bytes(12) + number.to_bytes(2, "little"))
    assert released_name(program, "1.2") == released


def test_checksums_are_those_of_all_files(dist: Path) -> None:
    release = dist / "release"
    checked = subprocess.run(
        ["sha256sum", "--check", "--strict", "SHA256SUMS"], cwd=release, capture_output=True, text=True
    )
    assert checked.returncode == 0, checked.stdout
    assert checked.stdout.count(": OK") == len(list(release.iterdir())) - 1


def test_checksums_that_are_written_again_leave_their_signature_out(dist: Path) -> None:
    signature = dist / "release/SHA256SUMS.sigstore.json"
    signature.write_text("{}")
    try:
        script = "import sys, pathlib, release; release.checksums(pathlib.Path(sys.argv[1]))"
        subprocess.run([sys.executable, "-c", script, str(dist)], cwd=TREE / "packaging", check=True)
        assert signature.name not in (dist / "release/SHA256SUMS").read_text()
    finally:
        signature.unlink()


def test_the_bill_of_materials_names_what_is_in_each_file(dist: Path) -> None:
    said = {"scaler_scheduler 9.8.7", "PyPy 3.11.11", "libzmq 4.3.5"}
    (protocol,) = parts_of(dist, r"scaler_protocol-.*\.whl")
    assert re.fullmatch(r"scaler-protocol \d.*", protocol)
    assert parts_of(dist, r"scaler_protocol-.*\.tar\.gz") == {protocol}
    assert parts_of(dist, r"scaler_scheduler-.*-linux") == said | {"Some_Package 1.2", "libsome.so.1"}
    assert parts_of(dist, r".*\.pex") == said | {"pyzmq 9"}


def test_the_bill_of_materials_is_well_formed(dist: Path) -> None:
    document = bill(dist)
    assert (document["bomFormat"], document["specVersion"], document["version"]) == ("CycloneDX", "1.5", 1)
    references: List[str] = []
    for file in document["components"]:
        (digest,) = file["hashes"]
        content = (dist / "release" / file["name"]).read_bytes()
        assert digest == {"alg": "SHA-256", "content": hashlib.sha256(content).hexdigest()}
        references += [file["bom-ref"], *(part["bom-ref"] for part in file["components"])]
    assert len(references) == len(set(references))
    assert sum("libsome" in reference for reference in references) == 2
    purls = {part["purl"] for file in document["components"] for part in file["components"] if "purl" in part}
    assert "pkg:pypi/some-package@1.2" in purls


def test_the_same_files_make_the_same_release(dist: Path) -> None:
    before = {path.name: path.read_bytes() for path in (dist / "release").iterdir()}
    make_release(dist)
    assert {path.name: path.read_bytes() for path in (dist / "release").iterdir()} == before


def test_where_nothing_is_built_nothing_is_released(tmp_path: Path) -> None:
    script = "import sys, pathlib, release; release.collect(pathlib.Path(sys.argv[1]))"
    finished = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path)], cwd=TREE / "packaging", capture_output=True, text=True
    )
    assert finished.returncode == 1 and "make dist" in finished.stderr


# The documentation.


def test_the_workflow_keeps_each_version_of_the_documentation_in_its_branch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its script runs as it stands, with a repository on this disk in the place of GitHub's."""
    hosted = tmp_path / "hosted.git"
    subprocess.run(["git", "init", "--quiet", "--bare", str(hosted)], check=True)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")
    setting = f"url.{hosted}.insteadOf", "https://x-access-token:secret@example.org/owner/scaler"
    subprocess.run(["git", "config", "--global", *setting], check=True)
    for name, value in (
        ("TOKEN", "secret"),
        ("GITHUB_SERVER_URL", "https://example.org"),
        ("GITHUB_REPOSITORY", "owner/scaler"),
    ):
        monkeypatch.setenv(name, value)
    [script] = [step["run"] for step in steps_of(TREE / ".github/workflows/docs.yml") if "publish_site" in str(step)]

    def publish(version: str, text: str) -> None:
        checkout = tmp_path / f"{version} {text}"  # a machine of its own
        (checkout / "docs/site").mkdir(parents=True)
        (checkout / "dist/docs").mkdir(parents=True)
        (checkout / "dist/docs/index.html").write_text(text)
        shutil.copy(TREE / "docs/site/publish_site.py", checkout / "docs/site")
        monkeypatch.setenv("GITHUB_REF_NAME", version)
        subprocess.run(["bash", "-eo", "pipefail", "-c", script], cwd=checkout, check=True, stdin=subprocess.DEVNULL)

    for version, text in (("main", "first"), ("v1.0.0", "released"), ("main", "second"), ("v1.0.0", "released")):
        shutil.rmtree(tmp_path / f"{version} {text}", ignore_errors=True)
        publish(version, text)

    pages = tmp_path / "pages"
    subprocess.run(["git", "clone", "--quiet", "--branch", "gh-pages", str(hosted), str(pages)], check=True)
    assert (pages / "main/index.html").read_text() == "second"
    assert (pages / "v1.0.0/index.html").read_text() == "released"
    assert 'url=v1.0.0/"' in (pages / "index.html").read_text()
    commits = subprocess.run(
        ["git", "log", "--format=%s"], cwd=pages, check=True, capture_output=True, text=True
    ).stdout
    assert commits.splitlines() == [f"The documentation of {each}" for each in ("main", "v1.0.0", "main")]
