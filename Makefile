PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: help install demo test lint format clean

help:
	@echo "make demo     fit the bundled digits, write a picture and a report"
	@echo "make test     lint, types and all tests"
	@echo "make install  $(VENV) with all extras"
	@echo "make lint     ruff and pyright"
	@echo "make format   let ruff rewrite the code"

$(STAMP): pyproject.toml src/srflvm/_version.py
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable ".[plot,dev]"
	@touch $(STAMP)

install: $(STAMP)

demo: $(STAMP)
	$(BIN)/srflvm demo

lint: $(STAMP)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/pyright --pythonpath $(BIN)/python

test: lint
	$(BIN)/python -m pytest -n auto --dist worksteal

format: $(STAMP)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

clean:
	rm -rf $(VENV) build dist demo-output
