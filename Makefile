# Every command of the tree. Each sets up what it needs by itself, once; `make` alone lists them.
#
# The set-up is in .ci/prepare. A stamp file in each virtual environment says that it is done; it is done again when a
# pyproject.toml or a list of tools changes, or when the tree has moved, since the environments hold absolute paths.

PYTHON ?= python3
PYPY ?= pypy3
ARGS ?=
FIRST ?= 0
SEEDS ?= 10000

DISTRIBUTIONS := protocol-spec/python appliance sdk conformance-tests
IN_VENV := .venv/bin/python
PREPARE := PYTHON='$(PYTHON)' PYPY='$(PYPY)' sh .ci/prepare

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
MAKEFLAGS += --no-print-directory

.PHONY: help
help:  ## list the commands
	@echo 'make COMMAND, where COMMAND is one of:'
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-14s %s\n", $$1, $$2 }' Makefile
	@echo "ARGS='...' is passed on: make test ARGS='sdk/tests -k cancel'"

.PHONY: demo
demo: .venv/.packages  ## start a cluster on this machine and give it work
	@$(IN_VENV) examples/demo.py $(ARGS)

.PHONY: test
test: .venv/.tools .venv-pypy/.packages  ## run all tests
	@$(IN_VENV) -m pytest $(ARGS)

.PHONY: check
check: .venv/.tools  ## check format, lint, types and import rules, and run the fast tests
	@$(IN_VENV) -m ruff format --check . || { echo 'To format all files: $(IN_VENV) -m ruff format .'; exit 1; }
	@$(IN_VENV) -m ruff check .
	@$(IN_VENV) -m mypy
	@$(IN_VENV) -m pytest -q -m 'not slow' $(ARGS)

.PHONY: simulate
simulate: .venv/.tools  ## simulate histories of a cluster: SEEDS=100000 of them, from FIRST=0 on
	@cd appliance && $(CURDIR)/$(IN_VENV) -m tests.simulation $(FIRST) $(SEEDS)

.PHONY: bench
bench: .venv/.tools .venv-pypy/.packages  ## measure the performance of this tree
	@$(IN_VENV) benchmarks/run.py $(ARGS)

.PHONY: bench-peers
bench-peers: .venv/.tools .venv-pypy/.packages  ## measure it beside comparable systems
	@$(IN_VENV) benchmarks/run_peers.py $(ARGS)

.PHONY: dist
dist: .venv/.tools  ## build wheels and source archives of the four packages in dist/wheels
	@$(PREPARE) build dist/wheels $(DISTRIBUTIONS)

.PHONY: release-files
release-files:  ## gather what `make dist` built in dist/release, with a bill of materials and checksums
	@$(PYTHON) packaging/release.py collect checksums

.PHONY: checksums
checksums:  ## write the checksums of all files in dist/release anew
	@$(PYTHON) packaging/release.py checksums

.PHONY: venv
venv: .venv/.tools  ## set up .venv: the four packages, editable, and the tools of development

.PHONY: clean
clean:  ## remove what was built, and caches; the environments stay (rm -rf .venv .venv-pypy)
	@rm -rf build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
	@find . -name '.venv*' -prune -o -path ./.git -prune -o -type d -name __pycache__ -print0 | xargs -0 -r rm -rf

# The stamps. The first line of each is the folder that the environment was made in.

MADE_HERE = $(filter $(CURDIR),$(shell head -n 1 $(1) 2>/dev/null))
PACKAGE_FILES := .ci/prepare $(DISTRIBUTIONS:=/pyproject.toml)

.venv/.packages: $(PACKAGE_FILES) $(if $(call MADE_HERE,.venv/.packages),,.FORCE)
	@$(PREPARE) packages

.venv/.tools: .venv/.packages .ci/requirements.txt
	@$(PREPARE) tools

.venv-pypy/.packages: $(PACKAGE_FILES) .ci/requirements-pypy.txt $(if $(call MADE_HERE,.venv-pypy/.packages),,.FORCE)
	@$(PREPARE) pypy

.PHONY: .FORCE
.FORCE:
