# Every target sets up what it needs: a virtual environment in .venv, and a Java that Spark runs on.
#   make demo ARGS="--scale 2"      make test ARGS="tests/trace -k merge"      make bench ARGS=--quick
#   make test-slow-faults           (one shard of the long runs; make test-slow runs all)

VENV  := .venv
STAMP := $(VENV)/.installed
ARGS  ?=

BENCHMARKS := goals against_structured_streaming on_a_cluster stall footprint cost_follows_change latency_and_storage cost_of_durability beside_an_epoch recovery tpch takeover declaring growth loops rounds_as_jobs tradeoff lookup branching first_result forecast speculation many_views pipelining

# Spark finds Java through JAVA_HOME, and starts its Python workers with PYSPARK_PYTHON.
SPARK := JAVA_HOME="$$(scripts/ensure-java.sh)" || exit 1; export JAVA_HOME; \
         export PYSPARK_PYTHON="$(CURDIR)/$(VENV)/bin/python";

# The processes that tests and Spark start need not compile every module again.
export PYTHONDONTWRITEBYTECODE :=

# Two processes; tests/conftest.py says what is handed out to them, and in which order.
TWO := -n 2 --no-loadscope-reorder

.PHONY: setup demo test test-slow docs docs-sql check bench clean
.DEFAULT_GOAL := test

setup: $(STAMP)
	@scripts/ensure-java.sh

$(STAMP): pyproject.toml constraints.txt setup.py src/holdfast/trace/_inner_loops.c
	python="$$(scripts/ensure-python.sh)" && { test -x $(VENV)/bin/python || "$$python" -m venv $(VENV); }
	$(VENV)/bin/python -m pip install --quiet -c constraints.txt -e '.[dev]'
	@touch $@

demo: $(STAMP)
	@$(SPARK) $(VENV)/bin/holdfast demo $(ARGS)

test: $(STAMP)
	@$(SPARK) $(VENV)/bin/python -m pytest $(TWO) $(ARGS)

# The long runs, in shards: `make test-slow` runs all of them to their end, `make test-slow-faults` one.
SHARDS         := simulator faults durability oracle cluster others
SLOW_simulator := tests/simulator
SLOW_faults    := tests/faults
SLOW_durability := tests/durability
SLOW_oracle    := tests/oracle tests/frontend
SLOW_cluster   := tests/cluster tests/demo tests/standby
SLOW_others    := tests $(addprefix --ignore=,$(SLOW_simulator) $(SLOW_faults) $(SLOW_durability) $(SLOW_oracle) $(SLOW_cluster))

test-slow: $(STAMP)
	@failed=; for shard in $(SHARDS); do echo "== $$shard"; $(MAKE) --no-print-directory test-slow-$$shard || failed="$$failed $$shard"; done; \
	  test -z "$$failed" || { echo "failed:$$failed"; exit 1; }

test-slow-%: $(STAMP)
	@$(SPARK) $(VENV)/bin/python -m pytest $(TWO) -m slow $(SLOW_$*) $(ARGS)

# The site, in site/; a link that leads nowhere, and a page that nobody leads to, is an error.
docs: $(STAMP).docs
	@NO_MKDOCS_2_WARNING=1 $(VENV)/bin/mkdocs build --strict && echo "site/index.html"

$(STAMP).docs: $(STAMP)
	$(VENV)/bin/python -m pip install --quiet -c constraints.txt -e '.[docs]'
	@touch $@

# What tests print into documents: the tables of docs/sql.md.
docs-sql: $(STAMP)
	@$(SPARK) HOLDFAST_WRITE_DOCS=1 $(VENV)/bin/python -m pytest tests/oracle/test_cases.py tests/oracle/test_constructs.py tests/oracle/test_documentation.py $(ARGS)

check: $(STAMP)
	$(VENV)/bin/ruff check src tests benchmarks examples
	$(VENV)/bin/ruff format --check src tests benchmarks examples
	$(VENV)/bin/mypy
	$(VENV)/bin/lint-imports

bench: $(STAMP)
	@$(SPARK) failed=0; for one in $(BENCHMARKS); do \
	  $(VENV)/bin/python benchmarks/$$one.py $(ARGS) || failed=1; done; exit $$failed

clean:
	rm -rf $(VENV) build dist site .mypy_cache .ruff_cache .pytest_cache .hypothesis spark-warehouse metastore_db derby.log
	find src tests benchmarks -name __pycache__ -type d -prune -exec rm -rf {} +
	rm -rf src/*.egg-info src/holdfast/trace/*.so
