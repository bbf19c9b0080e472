# Every target prints what it does and may be called again; only `setup` changes anything outside the folder.

VENV := .venv
RUN := $(VENV)/bin/python
# The first of these that is new enough. constraints.txt was made with 3.11, so that one is asked first.
PYTHON ?= $(or $(shell for python in python3.11 python3.12 python3.13 python3.14 python3; do \
	$$python -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$python && break; done),python3)

.PHONY: help setup test check lint demo
.DEFAULT_GOAL := help

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "make %-8s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: ## make the environment in .venv, with the versions of constraints.txt
	@$(PYTHON) scripts/setup_env.py $(VENV)

test: setup ## run the tests; ARGS="-k name" picks some
ifeq ($(strip $(ARGS)),)
	@echo '==> test: pytest tests, in two halves'
	@$(RUN) scripts/run_tests.py
else
	@echo '==> test: pytest $(strip tests $(ARGS))'
	@$(RUN) -m pytest tests $(ARGS)
endif

check: lint ## before a commit: lint, and every test that compiles nothing
	@echo '==> check: pytest tests, but what compiles, in two halves'
	@$(RUN) scripts/run_tests.py --check

lint: setup ## check style, types and the direction of imports
	@echo "==> lint: ruff check"
	@$(VENV)/bin/ruff check .
	@echo "==> lint: ruff format --check"
	@$(VENV)/bin/ruff format --check .
	@echo "==> lint: pyright"
	@$(VENV)/bin/pyright --pythonpath $(RUN)
	@echo "==> lint: lint-imports"
	@$(VENV)/bin/lint-imports --no-logo

DEMO ?= full
$(if $(filter full smallest,$(DEMO)),,$(error DEMO=$(DEMO): known are full and smallest))
DEMO_full := benchmarks/ops
DEMO_smallest := benchmarks/ops/bench_rms_norm.py -k decode
OUT := runs/demo-$(shell date +%Y%m%d-%H%M%S)

demo: setup ## benchmark this repository's ops on the best device here; DEMO=smallest runs one case
	@echo '==> demo: pytest $(strip $(DEMO_$(DEMO)) $(ARGS)), on the best device here'
	@$(RUN) -m pytest $(DEMO_$(DEMO)) --kernelmark-out $(OUT) $(ARGS)
	@echo "==> demo: the report is $(OUT)/report.md"
