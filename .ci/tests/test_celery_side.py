"""The side of Celery on docs/migrating/celery.md prints what the side of Scaler does.

Rule: instead of a broker, Celery uses files of a folder; else the program is the page's. Its tasks are a module, which
its worker imports, as the page says.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import List

import pytest

TREE = Path(__file__).resolve().parents[2]
CELERY = TREE / ".venv-situations/bin/celery"
FENCE = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
TIMEOUT_SECONDS = 60

FOLDERS = """
app.conf.broker_transport_options = {"data_folder_in": "queue", "data_folder_out": "queue", "control_folder": "control"}
"""


@pytest.mark.skipif(not CELERY.exists(), reason="no Celery here (make situations)")
def test_both_sides_print_the_same(tmp_path: Path) -> None:
    fences = FENCE.findall((TREE / "docs/migrating/celery.md").read_text(encoding="utf-8"))
    programs: List[str] = [text for language, text in fences if language == "python"]
    module, _, calls = programs[0].partition("\n\nprint(")
    assert module.count("redis://broker") == 2
    results = f"file://{tmp_path}"
    module = module.replace('broker="redis://broker"', 'broker="filesystem://"').replace("redis://broker", results)
    (tmp_path / "queue").mkdir()
    (tmp_path / "jobs.py").write_text(module + FOLDERS, encoding="utf-8")
    (tmp_path / "main.py").write_text(f"from jobs import *\nfrom jobs import group\nprint({calls}", encoding="utf-8")

    worker = subprocess.Popen(
        [str(CELERY), "-A", "jobs", "worker", "-c", "2", "--pool", "solo"],
        cwd=tmp_path,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        printed = subprocess.run(
            [str(CELERY.parent / "python"), "main.py"],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_SECONDS,
        )
    finally:
        worker.terminate()
        worker.wait(TIMEOUT_SECONDS)
    assert printed.returncode == 0, printed.stderr
    assert printed.stdout == next(text for language, text in fences if language == "text")
