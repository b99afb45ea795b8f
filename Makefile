# All commands of the tree. Each sets up what it needs, once; `make` alone lists them.
#
# The set-up is in .ci/prepare. A stamp file in each virtual environment marks it as complete. It runs again when a
# pyproject.toml or a list of tools changes, or when the tree has moved, because the environments contain absolute paths.

PYTHON ?= python3
PYPY ?= pypy3
ARGS ?=
# The machine that a single file with PyPy is for; for the other one it is made of Debian's packages.
HERE := $(shell uname -m)
OTHER := $(if $(filter x86_64,$(HERE)),aarch64,x86_64)
MACHINE ?= $(HERE)
# Tests run at a time: three more than processors, since many wait for programs that they have started.
JOBS ?= $(shell expr $$(nproc 2>/dev/null || echo 2) + 3)
CHOSEN_TESTS ?= not exhaustive
FIRST ?= 0
SEEDS ?=
SEEDS_IN_TURN := 1000

DISTRIBUTIONS := protocol-spec/python appliance sdk conformance-tests
IN_VENV := .venv/bin/python
# Python that is in no package: one run of mypy for each, since several have a module `conftest`, or another of one name.
TYPED_SCRIPTS := .ci appliance/tests benchmarks conformance-tests conftest.py docs examples packaging protocol-spec sdk/tests
PREPARE := PYTHON='$(PYTHON)' PYPY='$(PYPY)' sh .ci/prepare

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
MAKEFLAGS += --no-print-directory
# Images of containers have it, and then each program would compile all its modules.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help
help:  ## list the commands
	@echo 'make COMMAND, where COMMAND is one of:'
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-18s %s\n", $$1, $$2 }' Makefile
	@echo "ARGS='...' adds arguments: make test ARGS='sdk/tests -k cancel'; JOBS=1 runs one test at a time"

.PHONY: demo
demo: .venv/.packages  ## start a cluster on this machine and run tasks on it
	@$(IN_VENV) examples/demo.py $(ARGS)

.PHONY: test
test:  ## run all tests
	@$(MAKE) -j3 .venv/.compiled .venv-pypy/.packages dist-wheels dist-pex cpp-worker browser cloud-init
	@$(IN_VENV) -m pytest -n $(JOBS) --dist loadfile --no-loadscope-reorder -m '$(CHOSEN_TESTS)' $(ARGS)

.PHONY: test-all
test-all: CHOSEN_TESTS =
test-all: slurm systemd other-machine emulator test  ## run all tests, and those that repeat others on one more platform or with more seeds

.PHONY: check
check: .venv/.tools browser  ## check format, lint, types and import rules, run the fast tests, and report the cores' coverage
	@$(IN_VENV) -m ruff format --check . || { echo 'To format all files: $(IN_VENV) -m ruff format .'; exit 1; }
	@$(IN_VENV) -m ruff check .
	@$(MAKE) types
	@$(IN_VENV) $(if $(ARGS),-m pytest,.ci/core_coverage.py) -q -n $(JOBS) --dist loadfile -m 'not slow' $(ARGS)

.PHONY: types
types: .venv/.tools  ## check the types of packages, tests, benchmarks, examples and tools
	@$(IN_VENV) -m mypy
	@for folder in $(TYPED_SCRIPTS); do $(IN_VENV) -m mypy --no-error-summary $$folder || exit 1; done

.PHONY: pythons
pythons:  ## run the SDK's fast tests on every CPython that is here (ARGS='3.9 3.13')
	@$(PYTHON) .ci/pythons.py $(ARGS)

.PHONY: coverage
coverage: .venv/.tools  ## report which lines and branches of the cores their own tests do not run
	@$(IN_VENV) .ci/core_coverage.py --cores -q -n $(JOBS) --dist loadfile -m 'not slow' $(ARGS)

.PHONY: dropin
dropin: .venv/.packages  ## run the test suites of parfun and pargraph, from GitHub, against this tree (ARGS='--sources FOLDER')
	@$(IN_VENV) .ci/dropin $(ARGS)

.PHONY: conformance
conformance: .venv/.tools cpp-worker  ## test all implementations of the protocol in this tree: dist/conformance/index.html
	@cd conformance-tests && $(CURDIR)/$(IN_VENV) -m implementations $(CURDIR)/dist/conformance

.PHONY: mutants
mutants: .venv/.tools  ## run mutants and conformance cases that have changed, and record which case catches which (ARGS=--all: also those that have not changed)
	@mkdir -p build
	@cd conformance-tests && nice $(CURDIR)/$(IN_VENV) -m mutants.record $(ARGS) 2> $(CURDIR)/build/mutants.log

.PHONY: cpp-worker
cpp-worker:  ## build the C++ worker in build/cpp-worker
	@$(PREPARE) cpp_worker

.PHONY: other-machine
other-machine: .venv-pypy/.packages
	@$(PREPARE) other_machine $(OTHER)

.PHONY: slurm
slurm:  ## install Slurm and munge, as root, for the tests that run a real one: only in make test-all
	@$(PREPARE) slurm

.PHONY: systemd
systemd:  ## install systemd, as root, for the tests that run a real one in namespaces: only in make test-all
	@$(PREPARE) systemd

.PHONY: cloud-init
cloud-init:
	@$(PREPARE) cloud_init

.PHONY: emulator
emulator:
	@$(PREPARE) emulator $(OTHER)

.PHONY: browser
browser:  ## set up the browser for the tests of scaler_ui's pages, in build/browser
	@$(PREPARE) browser

.PHONY: screenshots
screenshots: .venv/.tools browser  ## retake the screenshots of docs/monitoring.md; takes minutes
	@$(IN_VENV) docs/take_screenshots.py $(ARGS)

.PHONY: simulate
simulate: .venv/.tools  ## simulate histories of a scheduler and of whole systems until one fails, or SEEDS=100000 of each; FIRST=0
	@first=$(FIRST); left=$(or $(SEEDS),-1); while [ $$left -ne 0 ]; do \
		count=$(SEEDS_IN_TURN); if [ $$left -gt 0 ] && [ $$left -lt $$count ]; then count=$$left; fi; \
		(cd appliance && $(CURDIR)/$(IN_VENV) -m tests.simulation $$first $$count) || exit 1; \
		(cd sdk/tests && $(CURDIR)/$(IN_VENV) -m whole_system $$first $$count) || exit 1; \
		first=$$((first + count)); if [ $$left -gt 0 ]; then left=$$((left - count)); fi; \
		echo "to go on from here: make simulate FIRST=$$first"; \
	done

.PHONY: soak
soak: .venv/.tools  ## load a real cluster, with faults, for ten minutes, and check that nothing is lost (ARGS='--minutes 120 --seed 7')
	@$(IN_VENV) sdk/tests/soak $(ARGS)

.PHONY: fuzz-handshakes
fuzz-handshakes: .venv/.tools  ## feed a million changed handshakes to both ends of CURVE (ARGS='--inputs 1000 --seed 7')
	@$(IN_VENV) protocol-spec/python/tests/wire/handshake_fuzzing.py $(ARGS)

.PHONY: planted-bugs
planted-bugs: .venv/.tools  ## plant bugs in the cores, one by one, and count the seeds until the simulation catches each
	@cd sdk/tests && $(CURDIR)/$(IN_VENV) -m whole_system.planted $(ARGS)

.PHONY: bench
bench: .venv/.tools .venv-pypy/.packages  ## measure the performance of this tree
	@$(IN_VENV) benchmarks/run.py $(ARGS)

.PHONY: bench-peers
bench-peers: .venv/.tools .venv-pypy/.packages  ## measure this tree and comparable systems
	@$(IN_VENV) benchmarks/run_peers.py $(ARGS)

.PHONY: bench-hosts
bench-hosts: .venv/.packages  ## measure bytes, rates, processor time and latency between hosts, which are network namespaces (root)
	@$(IN_VENV) benchmarks/hosts_bench.py $(ARGS)
	@$(IN_VENV) benchmarks/stream_bench.py --probe $(filter --json,$(ARGS))

.PHONY: bench-stream
bench-stream: .venv/.packages  ## measure one stream between two workers beside a plain socket: rate, processor time (root)
	@$(IN_VENV) benchmarks/stream_bench.py $(ARGS)

.PHONY: situations
situations: .venv-situations/.packages  ## run everyday situations on comparable engines, and write docs/situations.md
	@.venv-situations/bin/python sdk/tests/situations/run_situations.py --page docs/situations.md $(ARGS)

.PHONY: adapters
adapters: .venv-adapters/.packages  ## run the test suites of joblib, Dask and others on Scaler's adapters (ARGS='joblib')
	@cd sdk/tests/foreign_suites && $(CURDIR)/.venv-adapters/bin/python run_suites.py $(ARGS)

.PHONY: dist
dist: dist-wheels dist-pypy dist-pex dist-nuitka dist-previous  ## build all downloadable forms, in dist (nuitka takes minutes)
	@$(MAKE) dist-pypy MACHINE=$(OTHER)

.PHONY: dist-wheels
dist-wheels: dist/wheels/.built  ## build wheels and source archives of the four packages in dist/wheels

.PHONY: dist-pypy
dist-pypy: .venv/.tools .venv-pypy/.packages $(if $(filter $(HERE),$(MACHINE)),,other-machine)  ## build the scheduler with PyPy as one file (PYPY_HOME=... selects a PyPy, MACHINE=aarch64 a machine)
	@$(IN_VENV) packaging/pypy/build.py $(if $(filter $(HERE),$(MACHINE)),,--machine '$(MACHINE)') \
		--pypy '$(if $(and $(PYPY_HOME),$(filter $(HERE),$(MACHINE))),$(PYPY_HOME)/bin/pypy3,$(PYPY))'

.PHONY: dist-previous
dist-previous:  ## build the scheduler's single file of the newest release tag, or of TAG=..., in dist/previous, for tests of upgrades
	@$(PYTHON) packaging/previous.py $(TAG)

.PHONY: dist-pex
dist-pex: dist/pex/scaler_scheduler.pex  ## build one file for machines with PyPy or Python

.PHONY: dist-nuitka
dist-nuitka: dist/nuitka/scaler_scheduler  ## build one file for machines without Python, compiled from CPython; takes minutes

.PHONY: measure-packaging
measure-packaging: .venv/.tools .venv-pypy/.packages dist-wheels dist-pex  ## measure the forms in dist
	@$(IN_VENV) packaging/measure.py $(ARGS)

.PHONY: reproducible
reproducible:  ## build each form of the last commit twice, from two clones, and compare the bytes; takes many minutes (ARGS='pypy pex')
	@$(PYTHON) packaging/reproducible.py $(ARGS)

.PHONY: release-files
release-files:  ## collect the files of `make dist` in dist/release, with a bill of materials and checksums
	@$(PYTHON) packaging/release.py collect checksums

.PHONY: checksums
checksums:  ## rewrite the checksums of all files in dist/release
	@$(PYTHON) packaging/release.py checksums

.PHONY: venv
venv: .venv/.tools  ## set up .venv: the four packages, editable, and the development tools

.PHONY: docs
docs: .venv-docs/.packages  ## build the documentation as a site: dist/docs/index.html (SCALER_DOCS_REPOSITORY=URL: where files of the tree are shown)
	@.venv-docs/bin/python docs/site/build_site.py $(ARGS)

.PHONY: pictures
pictures: .venv/.packages  ## redraw the pictures of docs/images from their texts, and the charts from benchmarks/RESULTS.json
	@$(IN_VENV) docs/site/draw_pictures.py

.PHONY: configuration-page
configuration-page: .venv/.packages  ## regenerate the tables in docs/configuration.md from the programs' options
	@$(IN_VENV) .ci/configuration_page.py --write

.PHONY: migrating-page
migrating-page: .venv/.packages  ## regenerate the tables in docs/migrating/scaler.md from the compatibility tables
	@$(IN_VENV) .ci/migrating_page.py --write

.PHONY: clean
clean:  ## remove build results and caches, but keep the environments (rm -rf .venv*)
	@rm -rf build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
	@find . -name '.venv*' -prune -o -path ./.git -prune -o -type d -name __pycache__ -print0 | xargs -0 -r rm -rf

# Build results, rebuilt when their sources have changed.

PACKAGE_SOURCES := $(shell find $(DISTRIBUTIONS:=/src) -type f ! -path '*/__pycache__/*') \
	$(foreach file,pyproject.toml README.md LICENSE,$(DISTRIBUTIONS:=/$(file)))

dist/wheels/.built: $(PACKAGE_SOURCES) .venv-packaging/.tools
	@$(PREPARE) build dist/wheels $(DISTRIBUTIONS)
	@touch $@

dist/pex/scaler_scheduler.pex: dist/wheels/.built packaging/pins.txt $(wildcard packaging/pex/*.py packaging/pex/*.sh)
	@.venv-packaging/bin/python packaging/pex/build.py dist/wheels $@

dist/nuitka/scaler_scheduler: dist/wheels/.built packaging/pins.txt $(wildcard packaging/nuitka/*.py) .venv-packaging/.nuitka
	@.venv-packaging/bin/python packaging/nuitka/build.py dist/wheels $@

# The stamps. The first line of each is the folder in which the environment was created.

MADE_HERE = $(filter $(CURDIR),$(shell head -n 1 $(1) 2>/dev/null))
PACKAGE_FILES := .ci/prepare $(DISTRIBUTIONS:=/pyproject.toml)

.venv/.packages: $(PACKAGE_FILES) $(if $(call MADE_HERE,.venv/.packages),,.FORCE)
	@$(PREPARE) packages

.venv/.tools: .venv/.packages .ci/requirements.txt
	@$(PREPARE) tools

.venv/.compiled: .venv/.tools
	@$(PREPARE) compiled

.venv-pypy/.packages: $(PACKAGE_FILES) .ci/requirements-pypy.txt $(if $(call MADE_HERE,.venv-pypy/.packages),,.FORCE) | .venv/.packages
	@$(PREPARE) pypy

.venv-situations/.packages: $(PACKAGE_FILES) .ci/requirements-situations.txt $(if $(call MADE_HERE,.venv-situations/.packages),,.FORCE) | .venv/.packages
	@$(PREPARE) situations

.venv-adapters/.packages: $(PACKAGE_FILES) .ci/requirements-adapters.txt $(if $(call MADE_HERE,.venv-adapters/.packages),,.FORCE) | .venv/.packages
	@$(PREPARE) adapters

.venv-docs/.packages: $(PACKAGE_FILES) .ci/requirements-docs.txt $(if $(call MADE_HERE,.venv-docs/.packages),,.FORCE) | .venv/.packages
	@$(PREPARE) docs

.venv-packaging/.tools: .ci/prepare .ci/requirements-packaging.txt $(if $(call MADE_HERE,.venv-packaging/.tools),,.FORCE) | .venv/.packages
	@$(PREPARE) packaging

.venv-packaging/.nuitka: .venv-packaging/.tools .ci/requirements-nuitka.txt
	@$(PREPARE) nuitka

.PHONY: .FORCE
.FORCE:
