# make demo   set up .venv and see MJP at work; the last lines say where the results are
# make test   set up .venv, then lint, types and tests
# make docs   the documentation as a site, in out/site
# make bench  what MJP costs on this machine, as JSON
PYTHON ?= python3
BIN := .venv/bin

.PHONY: setup demo test lint docs bench clean
.DEFAULT_GOAL := demo

setup: .venv/ready

# one pip call under the constraints: torch, torchvision and timm must be resolved together
.venv/ready: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed: make PYTHON=/path/to/python3.11")'
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev]'
	@touch $@

demo: setup
	$(BIN)/mjp demo

lint: setup
	$(BIN)/lint-imports
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

docs: setup
	$(BIN)/mkdocs build --strict

test: lint
	$(BIN)/python -m pytest

bench: setup
	$(BIN)/mjp bench core --json

clean:
	rm -rf .venv out .mypy_cache .ruff_cache .pytest_cache .hypothesis
