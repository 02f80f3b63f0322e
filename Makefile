# Everything that is done here from a shell; `make` alone lists it.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
MAKEFLAGS += --no-builtin-rules --no-print-directory

export PYTHON
WORKERS ?= 2
FUZZ_SECONDS ?= 120
PYTHONS ?= $(BIN)/python

BIN := .venv/$(if $(filter Windows_NT,$(OS)),Scripts,bin)
# Whole files, so that what is costly to start (Spark, a built wheel) is started once for its tests;
# by their names, because by the number of tests Spark's long files come last, one worker idle.
PYTEST := $(BIN)/python -m pytest --numprocesses $(WORKERS) --dist loadfile --no-loadscope-reorder

# Tests that need what other targets download, or take minutes: `addopts` of pyproject.toml has them too.
LEFT_OUT := exhaustive or broker or registry or catalogs or stores or engines or notebooks or schedulers or wheels or \
	cluster or lakes

# The editable install compiles the core, so it is repeated when one of these changes.
BUILT_FROM := pyproject.toml setup.py $(wildcard arrow_io/*/_*_py.py arrow_io/*/*.pxd)

comma := ,

NOX = $(call with_java,$(BIN)/nox)

APICURIO := build/registry/apicurio-registry-app-2.6.13.Final-runner.jar
BROKER_ALONE := tests/broker/test_hdfs.py tests/broker/test_map_files.py

FAKE_GCS := build/stores/fake-gcs-server-1.56.1
AZURITE := build/stores/azurite-3.35.0
VERSITYGW := build/stores/versitygw-1.8.0

ICEBERG_REST := build/catalogs/classpath.txt

CLUSTER := build/cluster

LAKES := pyspark-lakes-4.1.0 pyspark-lakes-4.2
LAKE_JARS := build/lakes/4.1 build/lakes/4.2

.PHONY: help
help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-13s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: demo
demo: .venv/demo-installed ## Install, then ask a bundled topic a question in SQL
	@$(BIN)/pulsar-offload demo

.PHONY: install
install: .venv/dev-installed ## Install everything that development needs into .venv

.PHONY: test
test: install java browser ## Run the checks of every day: style, types, import contracts, most tests
	@$(MAKE) --jobs=2 lint daily-tests

# Beside each other: most of lint is one thread, and tests wait for each other at the end.
daily-tests: install
	@$(call with_programs,HYPOTHESIS_PROFILE=daily $(PYTEST) -m "not ($(LEFT_OUT) or long)")

.PHONY: test-long
test-long: install java browser ## Run the tests that `make test` leaves out, and its property tests on more examples
	@$(call with_programs,$(PYTEST) -m "(long or hypothesis) and not ($(LEFT_OUT))")

.PHONY: test-portable
test-portable: install ## Run the tests that need neither Java nor a browser, as CI does on macOS and Windows
	@$(PYTEST) -m "not ($(LEFT_OUT) or spark or browser)"

.PHONY: test-pure
test-pure: install java browser ## Run all tests on the uncompiled core
	@$(call with_programs,PULSAR_OFFLOAD_PURE=1 $(PYTEST))

.PHONY: test-broker
test-broker: broker ## Run the tests against a real Pulsar, which Maven downloads
	@# In processes of their own: a process with HDFS's native client cannot start Spark's, and MapFiles
	@# need brokers with other settings.
	@$(call with_maven,$(BIN)/python -m pytest -m broker tests/broker $(addprefix --ignore=,$(BROKER_ALONE)))
	@for file in $(BROKER_ALONE); do \
		$(call with_maven,$(BIN)/python -m pytest -m broker $$file) || exit 1; done

.PHONY: broker
broker: install build/broker/classpath.txt build/broker/hdfs/classpath.txt ## Download the Pulsar and HDFS of test-broker

.PHONY: test-registry
test-registry: registry ## Run the tests against a real schema registry, which Maven downloads
	@APICURIO=$(APICURIO) $(BIN)/python -m pytest -m registry tests/registry

.PHONY: registry
registry: install $(APICURIO) ## Download the schema registry of test-registry

.PHONY: test-stores
test-stores: stores java ## Run the tests against S3 and emulators of GCS and Azure, from Go and npm
	@$(call with_java,FAKE_GCS_SERVER=$(FAKE_GCS)/fake-gcs-server \
		AZURITE=$(AZURITE)/node_modules/.bin/azurite-blob VERSITYGW=$(VERSITYGW)/versitygw \
		GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT=false \
		$(BIN)/python -m pytest -m "stores and not exhaustive" tests/stores tests/benchmarks)

.PHONY: stores
stores: install $(FAKE_GCS)/fake-gcs-server $(AZURITE)/package.json $(VERSITYGW)/versitygw ## Download the stores of test-stores

.PHONY: test-catalogs
test-catalogs: catalogs java ## Run the tests against Iceberg's REST server, which Maven downloads, and Glue
	@$(call with_java,ICEBERG_REST=$(ICEBERG_REST) \
		$(BIN)/python -m pytest -m "catalogs and not exhaustive" tests/catalogs)

.PHONY: catalogs
catalogs: install $(ICEBERG_REST) ## Download the REST server of test-catalogs

.PHONY: test-versions
test-versions: .venv/nox-installed $(LAKE_JARS) ## Run chosen tests on the oldest and newest of each library and Python
	@$(NOX) --tags versions

.PHONY: test-brief
test-brief: .venv/nox-installed ## Run chosen tests on the oldest and newest of many libraries at once
	@$(NOX) --tags brief

.PHONY: brief
brief: .venv/nox-installed ## Install the libraries of test-brief
	@$(NOX) --tags brief --install-only

.PHONY: test-engines
test-engines: .venv/nox-installed ## Run the tests with DataFusion, Daft, Ray, Dask and Ibis
	@$(NOX) --session engines

.PHONY: engines
engines: .venv/nox-installed ## Install the libraries of test-engines
	@$(NOX) --session engines --install-only

.PHONY: test-lakes
test-lakes: .venv/nox-installed $(LAKE_JARS) ## Run the tests that read tables of copies by the jars of Delta and Iceberg
	@$(NOX) --session $(LAKES)

.PHONY: lakes
lakes: .venv/nox-installed $(LAKE_JARS) ## Install the libraries of test-lakes, and download the jars
	@$(NOX) --session $(LAKES) --install-only

.PHONY: test-notebooks
test-notebooks: .venv/nox-installed ## Run the tests with dbt, SQLAlchemy, JupySQL and marimo
	@$(NOX) --session notebooks

.PHONY: notebooks
notebooks: .venv/nox-installed ## Install the libraries of test-notebooks
	@$(NOX) --session notebooks --install-only

.PHONY: test-schedulers
test-schedulers: .venv/nox-installed ## Run the tests with Airflow and Dagster
	@$(NOX) --session schedulers

.PHONY: schedulers
schedulers: .venv/nox-installed ## Install the libraries of test-schedulers
	@$(NOX) --session schedulers --install-only

.PHONY: wheels
wheels: .venv/wheels-installed ## Build and test dist/: the source distribution and a Linux wheel for each of PYTHONS
	@rm -rf build/wheels dist
	@$(BIN)/python -m build --sdist --outdir dist >/dev/null
	@# Linked as plainly as in a container: a Python that was built by hand would add its own folder.
	@for python in $(PYTHONS); do \
		echo "Compiling a wheel for $$python ..."; \
		PULSAR_OFFLOAD_PURE=0 LDSHARED="$(CC) -shared" $(BIN)/python -m pip --python "$$python" \
			wheel -qq --no-deps --wheel-dir build/wheels dist/*.tar.gz; \
	done
	@PATH="$(CURDIR)/$(BIN):$$PATH" auditwheel repair --strip --wheel-dir dist build/wheels/*.whl
	@$(BIN)/python -m pytest -m wheels -rP tests/wheels

.PHONY: test-cluster
test-cluster: cluster java ## Run the tests of Spark clusters, whose executors have nothing installed
	@$(call with_java,CLUSTER=$(CLUSTER) $(BIN)/python -m pytest -m cluster tests/cluster)

.PHONY: cluster
cluster: install $(CLUSTER)/environment.tar.gz $(CLUSTER)/site.zip ## Pack the archives of test-cluster

.PHONY: lint
lint: install docs ## Check style, spelling, types, import contracts and the links of docs/
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/codespell
	$(BIN)/mypy
	@# What Windows lacks or does differently, as far as it can be seen from here.
	$(BIN)/ruff check --preview --select PLW1514
	$(BIN)/mypy --platform win32 --cache-dir .mypy_cache/win32 arrow_io connector
	$(BIN)/lint-imports

.PHONY: docs
docs: install ## Build the pages of docs/ into build/site
	@# With --quiet, --strict would overlook warnings.
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict 2>&1 | { grep -v "^INFO" || true; }

.PHONY: docs-serve
docs-serve: install ## Show the pages of docs/ on http://127.0.0.1:8000, and again after each change
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs serve --livereload

.PHONY: bench
bench: install ## Print the table of benchmarks
	@$(BIN)/python -m tests.benchmarks

.PHONY: bench-check
bench-check: install ## Fail if a benchmark takes over 5 % longer than at the recorded run: OPTIONS="--only json"
	@$(BIN)/python -m tests.benchmarks.regressions check $(OPTIONS)

.PHONY: bench-record
bench-record: install ## Record the run of this commit on this machine, for bench-check
	@$(BIN)/python -m tests.benchmarks.regressions record $(OPTIONS)

.PHONY: bench-cluster
bench-cluster: install java ## Print what copies on a local cluster of Spark cost
	@$(call with_java,$(BIN)/python -m tests.benchmarks.cluster_copying)

.PHONY: bench-store
bench-store: install ## Print how busy connections to a slow store are, and what large catalogs take
	@VERSITYGW=$(VERSITYGW)/versitygw $(BIN)/python -m tests.benchmarks.store

.PHONY: bench-peers
bench-peers: peers ## Print our decoders beside the fastest peers: OPTIONS="--payload avro-flat --rows 1024"
	@$(BIN)/python -m tests.benchmarks.peers $(OPTIONS)

.PHONY: peers
peers: install ## Build the peers of bench-peers that are written in Rust or Go
	@mkdir -p build/peers
	@# To link all of Arrow at once takes minutes and much memory, so in one job and with low priority.
	@! command -v cargo >/dev/null || RUSTFLAGS="-C target-cpu=native" CARGO_TARGET_DIR="$(CURDIR)/build/peers" \
		nice cargo build --quiet --release --jobs 1 --locked --manifest-path tests/benchmarks/peers/rust/Cargo.toml
	@! command -v go >/dev/null || (cd tests/benchmarks/peers/go && \
		nice go build -buildmode=c-shared -o "$(CURDIR)/build/peers/libhyperpb.so" .)

.PHONY: fuzz
fuzz: install ## Run the property tests on many more examples, and the exhaustive tests
	HYPOTHESIS_PROFILE=exhaustive $(PYTEST) -m "(exhaustive or hypothesis) and not (broker or catalogs or stores)"

.PHONY: fuzz-asan
fuzz-asan: install ## Run changed and random bytes through a core with sanitizers
	@.ci/sanitized address build/sanitized $(FUZZ_SECONDS)

.PHONY: fuzz-tsan
fuzz-tsan: install ## Let threads read one dataset on a core with a sanitizer of data races
	@.ci/sanitized thread build/unlocked

.PHONY: fuzz-faults
fuzz-faults: install $(VERSITYGW)/versitygw ## Break the answers of a store in every way: FAULT_SEED=…
	@VERSITYGW=$(VERSITYGW)/versitygw $(BIN)/python -m pytest -m "stores and exhaustive" tests/stores

.PHONY: mutate
mutate: .venv/mutation-installed ## Print what tests do not notice: MODULES=connector/scan/topic_scan.py SAMPLE=40
	@nice $(BIN)/python -m tests.mutation --sample $(or $(SAMPLE),0) $(MODULES)

.PHONY: java
java: ## Find a Java that Spark can run on, or install one by apt
	@.ci/provide java >/dev/null

.PHONY: browser
browser: ## Find a Chromium that the report can be looked at with, or install one by apt
	@.ci/provide chromium >/dev/null

.PHONY: clean
clean: ## Remove all that was built, and .venv
	rm -rf .venv build dist *.egg-info .benchmarks .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	rm -f arrow_io/*/*.c arrow_io/*/*.so
	find $(wildcard arrow_io connector spark_ds sql_examples tests) -name __pycache__ -prune -exec rm -rf {} +

with_programs = export CHROMIUM JAVA_HOME; \
	CHROMIUM=$$(.ci/provide chromium); JAVA_HOME=$$(.ci/provide java); $(1)

with_java = export JAVA_HOME; JAVA_HOME=$$(.ci/provide java); $(1)

with_maven = export JAVA_HOME; JAVA_HOME=$$(.ci/provide maven); $(1)

.venv/created:
	@python=$$(.ci/provide python); "$$python" -m venv --clear .venv
	@$(BIN)/python -m pip install --quiet --upgrade "pip>=25.1" # the first that knows dependency groups
	@touch $@

.venv/demo-installed: WANTED := ".[cli,duckdb]"
.venv/dev-installed: WANTED := ".[all]" --group dev

.venv/mutation-installed: .venv/dev-installed
	@$(BIN)/python -m pip install -qq --group mutation
	@touch $@

.venv/nox-installed: .venv/dev-installed
	@$(BIN)/python -m pip install -qq --group versions
	@touch $@

.venv/wheels-installed: .venv/dev-installed
	@$(BIN)/python -m pip install -qq --group wheels
	@touch $@

# pkgutil, which Spark looks for data sources with, cannot see what an editable install maps to another
# folder; it can see a folder that a .pth file names.
.venv/demo-installed .venv/dev-installed: .venv/created $(BUILT_FROM)
	@echo "Installing into .venv and compiling the core ..."
	@rm -f arrow_io/*/*_py.c # Cython does not see that a .pxd file is newer than they are
	@PULSAR_OFFLOAD_PURE=0 $(BIN)/python -m pip install -qq --editable $(WANTED)
	@echo "$(CURDIR)/spark_ds/autoload" >"$$($(BIN)/python -c \
		'import sysconfig; print(sysconfig.get_path("purelib"))')/pyspark_pulsar_offload.pth"
	@touch .venv/demo-installed $@

# As docs/spark-clusters.md says, but with the wheel of this tree.
$(CLUSTER)/wheel: $(BUILT_FROM) $(shell find arrow_io connector spark_ds -name "*.py") | .venv/dev-installed
	@echo "Building a wheel in $@ ..."
	@rm -rf $@ && $(BIN)/python -m pip wheel -qq --no-deps --wheel-dir $@ . && touch $@

$(CLUSTER)/environment.tar.gz: $(CLUSTER)/wheel
	@echo "Packing an environment in $(CLUSTER) ..."
	@$(BIN)/python -m venv --clear $(CLUSTER)/environment
	@$(CLUSTER)/environment/bin/python -m pip install -qq "$$(echo $</*.whl)[s3]" "pandas<3" venv-pack
	@$(CLUSTER)/environment/bin/venv-pack --quiet --force -p $(CLUSTER)/environment -o $@

$(CLUSTER)/site.zip: $(CLUSTER)/wheel
	@rm -rf $(CLUSTER)/site
	@$(BIN)/python -m pip install -qq --target $(CLUSTER)/site --no-deps $</*.whl crc32c fsspec protobuf zstandard
	@cd $(CLUSTER)/site && $(CURDIR)/$(BIN)/python -m zipfile -c ../site.zip .

$(APICURIO):
	@echo "Downloading a schema registry into build/registry ..."
	@$(call with_maven,mvn --batch-mode --no-transfer-progress --quiet \
		-Dmaven.repo.local="$(CURDIR)/build/registry/maven" \
		-Dartifact=io.apicurio:apicurio-registry-app:2.6.13.Final:tar.gz:all \
		-DoutputDirectory="$(CURDIR)/build/registry" \
		org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy)
	@tar -xzf build/registry/*-all.tar.gz -C build/registry

$(ICEBERG_REST): tests/catalogs/pom.xml
	@echo "Downloading Iceberg's REST server into $(@D) ..."
	@$(call with_maven,mvn --batch-mode --no-transfer-progress --quiet --file $< \
		-Dmaven.repo.local="$(CURDIR)/$(@D)/maven" -Dfolder="$(CURDIR)/$(@D)" package)
	@touch $@

# The file that Maven makes last tells that all are there.
build/broker/classpath.txt: tests/broker/pom.xml
	@echo "Downloading a Pulsar into build/broker ..."
	@$(call with_maven,mvn --batch-mode --no-transfer-progress --quiet --file $< \
		-Dmaven.repo.local="$(CURDIR)/build/broker/maven" -Dfolder="$(CURDIR)/build/broker" package)
	@touch $@

build/broker/hdfs/classpath.txt: tests/broker/hdfs/pom.xml
	@echo "Downloading an HDFS into build/broker/hdfs ..."
	@$(call with_maven,mvn --batch-mode --no-transfer-progress --quiet --file $< \
		-Dmaven.repo.local="$(CURDIR)/build/broker/maven" -Dfolder="$(CURDIR)/build/broker/hdfs" package)
	@touch $@

# Spark has the other libraries that they need.
$(LAKE_JARS): build/lakes/%: tests/lakes/pom.xml
	@echo "Downloading jars of Delta and Iceberg into $@ ..."
	@rm -rf $@ && $(call with_maven,mvn --batch-mode --no-transfer-progress --quiet --file $< -Dspark=$* \
		-Dmaven.repo.local="$(CURDIR)/build/lakes/maven" -DoutputDirectory="$(CURDIR)/$@" \
		-DincludeGroupIds=io.delta$(comma)io.unitycatalog$(comma)org.apache.iceberg \
		org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies)
	@touch $@

$(FAKE_GCS)/fake-gcs-server:
	@echo "Building an emulator of Google Cloud Storage in $(FAKE_GCS) ..."
	@go=$$(.ci/provide go); GOBIN="$(CURDIR)/$(FAKE_GCS)" "$$go" install \
		github.com/fsouza/fake-gcs-server@v$(lastword $(subst -, ,$(FAKE_GCS)))

$(VERSITYGW)/versitygw:
	@echo "Building a gateway from S3 to a folder in $(VERSITYGW) ..."
	@go=$$(.ci/provide go); GOBIN="$(CURDIR)/$(VERSITYGW)" "$$go" install \
		github.com/versity/versitygw/cmd/versitygw@v$(lastword $(subst -, ,$(VERSITYGW)))

$(AZURITE)/package.json:
	@echo "Downloading an emulator of Azure into $(AZURITE) ..."
	@npm=$$(.ci/provide npm); "$$npm" install --silent --no-audit --no-fund --prefix $(AZURITE) \
		azurite@$(lastword $(subst -, ,$(AZURITE)))
