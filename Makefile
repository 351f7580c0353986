# make demo: set everything up and run the quick study.   make test: set everything up and run every check.   make site: the docs as a site, in site/.
PYTHON ?= python3
BIN := .venv/bin
STUDIES := quick irie2023 separations2024 separations2024-laptop leaks proofs theory quick-rates
CARDS := transformer linear-transformer delta-net delta-net-signed recurrent-delta srwm lstm gru mamba

.DEFAULT_GOAL := help
.PHONY: help setup demo test check site bench

help:
	@sed -n 's/^# make/make/p' Makefile | sed 's/   make/\nmake/g'

# A stamp per set of packages: nothing is installed twice until pyproject.toml changes.
.venv/.made:
	$(PYTHON) -c 'import sys; sys.exit(0 if (3, 11) <= sys.version_info < (3, 14) else "assay needs Python 3.11 to 3.13; choose one with make PYTHON=python3.11")'
	$(PYTHON) -m venv .venv
	touch $@

.venv/.installed: .venv/.made pyproject.toml
	@echo 'installing assay into .venv (a minute or two)'
	$(BIN)/pip install --quiet --disable-pip-version-check --editable .
	touch $@

.venv/.installed-dev: .venv/.made pyproject.toml
	@echo 'installing assay and its checks into .venv (a minute or two)'
	$(BIN)/pip install --quiet --disable-pip-version-check --editable '.[dev]'
	touch $@ .venv/.installed

# Kernels are compiled at their first use; here before that, two at a time.
.venv/.compiled: .venv/.installed $(wildcard src/assay/ops/cpu/*.py)
	@echo 'compiling CPU kernels (up to half a minute)'
	$(BIN)/assay study scripts/compile_kernels.py --store .venv/kernels --device cpu --again >.venv/kernels.log
	touch $@

setup: .venv/.installed-dev

demo: .venv/.compiled
	$(BIN)/assay study quick --store demo/store --device cpu
	$(BIN)/assay report quick --store demo/store --out demo

check: .venv/.installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# Three processes for two cores: some tests wait for other processes.
test: check
	$(BIN)/pytest -n 3 --dist worksteal

# The interactive pages of the published studies, which are not in the repository; the site links to those that exist.
reports/%/index.html: .venv/.installed-dev $(wildcard src/assay/results/*)
	$(BIN)/assay report $*

# Cards of the references: from records that come with Assay; what a token costs is measured here.
reports/cards/%/index.html: .venv/.installed-dev $(wildcard src/assay/results/card-*)
	$(BIN)/assay card $* --device cpu --out reports/cards/$*

site: $(STUDIES:%=reports/%/index.html) $(CARDS:%=reports/cards/%/index.html)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

bench: .venv/.installed-dev
	$(BIN)/python bench/tasks.py
	$(BIN)/python bench/models.py
	$(BIN)/python bench/ops.py
	$(BIN)/python bench/population.py
	$(BIN)/python bench/launches.py
