"""Snakemake's tests for executors, on our plugin: packaging/snakemake."""

from __future__ import annotations

import os

from suite import HERE, Suite

PLUGIN = HERE.parents[2] / "packaging/snakemake"

SUITES = [
    Suite(
        adapter="Snakemake's executor plugin",
        distribution="snakemake",
        files=[str(PLUGIN / "tests/test_workflows.py")],
        fewest=8,
        # It is no part of this tree's own tests: its environment is another one.
        arguments=["--noconftest", "-c", os.devnull, "--rootdir", str(PLUGIN)],
        environment={"PYTHONPATH": os.pathsep.join([str(HERE), str(PLUGIN)])},
    )
]
