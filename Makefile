# make demo   what temperature does to a network, on this machine, in about two minutes
# make test   everything CI runs: lint, types, doctests, tests
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt

.PHONY: demo test lint clean

demo: $(VENV)/.demo
	@$(BIN)/thermocline demo

test: lint
	$(BIN)/python -m pytest -n auto --dist worksteal

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright

clean:
	rm -rf $(VENV) demo build dist src/*.egg-info .pytest_cache .ruff_cache .hypothesis
	find src tests -name __pycache__ -type d -prune -exec rm -rf {} +

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "thermocline needs Python 3.11 or newer; this is $$($(PYTHON) --version). Try: make PYTHON=python3.11 $(MAKECMDGOALS)"; exit 1; }
	$(PYTHON) -m venv $(VENV)

# One environment for both; a stamp remembers which extras it has, and a changed pin installs again.
$(VENV)/.demo: pyproject.toml constraints.txt | $(BIN)/python
	@echo "installing (first time: about a minute)"
	$(PIP) -e ".[report]"
	@touch $@

$(VENV)/.dev: pyproject.toml constraints.txt | $(BIN)/python
	@echo "installing with test tools (first time: about two minutes)"
	$(PIP) -e ".[dev]"
	@# Another library's detectors, to compare ours with in tests and benchmarks. Without its dependencies: they are there, but
	@# for torchvision's own, which would bring gigabytes of CUDA.
	$(PIP) --no-deps pytorch-ood torchvision
	@touch $@ $(VENV)/.demo
