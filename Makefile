PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: help install demo test test-quick lint docs examples package format clean

help:
	@echo "make demo     fit the bundled digits, write a picture and a report"
	@echo "make test     lint, types, the documentation and all tests"
	@echo "make test-quick the tests that are not slow (two minutes)"
	@echo "make install  $(VENV) with all extras"
	@echo "make lint     style, types, layers of imports, dead code and measures of the structure"
	@echo "make docs     the documentation, in build/docs; warnings are errors"
	@echo "make examples the Python of the documentation, with whole fits (minutes)"
	@echo "make package  build the wheel and try it with the oldest and newest versions"
	@echo "make format   let ruff rewrite the code"

$(STAMP): pyproject.toml src/srflvm/_version.py
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable ".[plot,docs,dev]"
	@touch $(STAMP)

# The extra `bench` has a package that is compiled where it is installed; nothing else here needs a compiler.
install: $(STAMP)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable ".[all]"

demo: $(STAMP)
	$(BIN)/srflvm demo

lint: $(STAMP)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/pyright --pythonpath $(BIN)/python
	$(BIN)/lint-imports --no-cache
	$(BIN)/vulture
	$(BIN)/python tools/architecture.py

test: lint docs
	$(BIN)/python -m pytest -n auto --dist worksteal

test-quick: $(STAMP)
	$(BIN)/python -m pytest -n auto --dist worksteal -m "not slow"

docs: $(STAMP)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

examples: $(STAMP)
	SRFLVM_FULL_EXAMPLES=1 $(BIN)/python -m pytest -n auto --dist worksteal tests/integration/test_docs.py

package:
	PYTHON=$(PYTHON) tools/smoke.sh

format: $(STAMP)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

clean:
	rm -rf $(VENV) build dist demo-output
