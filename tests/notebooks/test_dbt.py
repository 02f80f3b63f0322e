"""The plugin of dbt-duckdb, in projects that dbt itself runs."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import duckdb
import pyarrow as pa
import pytest

from connector import open_topic, write_messages
from connector.dataset import TopicDataset
from tests.support.golden import GOLDEN, golden_topic
from tests.support.snippets import write_files

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from dbt.contracts.results import RunResult

    from connector.scan.scanner import TopicScanner

# dbt leaves its log open until its next run.
pytestmark = [
    pytest.mark.notebooks,
    pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning"),
]

PAGE: Final = (Path(__file__).parents[2] / "docs" / "recipes" / "dbt.md").read_text("utf-8")
ORDERS: Final = golden_topic("json-orders")
SECRET: Final = "wJalrXUtnFEMI/K7MDENG"  # noqa: S105 - of no account
POSITION: Final = ("__ledger_id__", "__entry_id__", "__batch_index__")


@dataclass
class Project:
    """A dbt project with the files of the page."""

    folder: Path

    def write(self, name: str, text: str) -> None:
        """Write a file."""
        (self.folder / name).write_text(text, "utf-8")

    def replace(self, name: str, old: str, new: str) -> None:
        """Change a text in a file."""
        text = (self.folder / name).read_text("utf-8")
        assert old in text
        self.write(name, text.replace(old, new))

    def run(self, *arguments: str) -> list[RunResult]:
        """Run a command, which must succeed."""
        result = self.invoke(*arguments)
        assert result.success, result.exception or [each.message for each in result.result]
        return list(result.result)

    def invoke(self, *arguments: str) -> Any:  # noqa: ANN401 - dbt is not installed everywhere
        """Run a command."""
        from dbt.cli.main import dbtRunner

        # dbt looks for the folder of profiles when it is imported.
        options = ("--no-use-colors", "--profiles-dir", str(self.folder))
        return dbtRunner().invoke([*arguments, *options])

    def query(self, sql: str) -> list[tuple[Any, ...]]:
        """Query the database that the models are in."""
        with duckdb.connect(self.folder / "shop.duckdb") as con:
            return con.execute(sql).fetchall()


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Project]:
    """The project of the page, in the current folder."""
    from dbt.adapters.duckdb.connections import DuckDBConnectionManager

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DBT_SEND_ANONYMOUS_USAGE_STATS", "false")
    (tmp_path / "golden").symlink_to(GOLDEN / "pulsar-4.0.7")
    write_files(PAGE, tmp_path)
    project = Project(tmp_path)
    project.write("dbt_project.yml", "name: shop\nprofile: shop\nmodels:\n  +materialized: table\n")
    yield project
    # A process keeps its connection for the next run with an equal profile, even of another folder.
    DuckDBConnectionManager.close_all_connections()


def test_project_of_the_page(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its models have the rows of the topic, its tests pass, and only what they use is decoded."""
    scans: list[tuple[Sequence[str] | None, str]] = []
    scanner = TopicDataset.scanner

    def spy(topic: TopicDataset, columns: Any = None, filter: Any = None) -> TopicScanner:  # noqa: A002, ANN401
        scans.append((columns, str(filter)))
        return scanner(topic, columns, filter)

    monkeypatch.setattr(TopicDataset, "scanner", spy)

    results = {each.node.name: each for each in project.run("build")}

    assert {"revenue", "orders", "orders_by_time"} < results.keys()
    assert any(name.startswith("source_not_null_pulsar_orders") for name in results)
    [columns] = [columns for columns, condition in scans if "customer" in condition]
    assert columns == ["status", "total"]
    orders = "from {} order by all"
    assert project.query(orders.format("orders")) == project.query(orders.format("orders_by_time"))
    with duckdb.connect() as con:
        con.register("topic", open_topic("golden/objects", "json-orders", metadata="golden"))
        expected = con.execute(
            "select status, count(*), sum(total) from topic where customer.id < 40 group by all"
            " order by all"
        ).fetchall()
    assert project.query("from revenue order by all") == expected


def test_sources_without_models(project: Project) -> None:
    """`dbt show` reads a bound that the source has, and `dbt source freshness` the last time."""
    last = "select count(*) as n from {{ source('pulsar', 'last_orders') }}"
    [shown] = project.run("show", "--inline", last)
    assert shown.agate_table.rows[0][0] == 150

    project.replace(
        "models/sources.yml",
        "loaded_at_field: __publish_time__",
        "loaded_at_field: __publish_time__\n      freshness: {warn_after: {count: 1, period: day}}",
    )
    result = project.invoke("source", "freshness")
    times = open_topic("golden/objects", "json-orders").to_table(["__publish_time__"])
    newest = max(times["__publish_time__"].to_pylist())
    assert {each.max_loaded_at for each in result.result} == {newest}


@pytest.mark.parametrize("database", ["shop.duckdb", ":memory:"])
def test_many_threads(project: Project, database: str) -> None:
    """Models that read one source at the same time, all for the first time, do not conflict."""
    project.replace("profiles.yml", "path: shop.duckdb", f"path: '{database}'")
    project.replace("profiles.yml", "threads: 4", "threads: 8")
    names = [f"copy_{number}" for number in range(16)]
    for name in names:
        sql = "select count(*) as n from {{ source('pulsar', 'orders') }}"
        project.write(f"models/{name}.sql", sql)

    results = project.run("run", "--select", *names)

    assert len(results) == len(names)


def test_view_over_a_source_outlives_the_run(project: Project) -> None:
    """A model is built on a view that an earlier run stored in the database."""
    project.write(
        "models/staged.sql",
        "{{ config(materialized='view') }} select status from {{ source('pulsar', 'orders') }}",
    )
    project.write("models/counts.sql", "select count(*) as n from {{ ref('staged') }}")
    project.run("run", "--select", "staged")

    project.run("run", "--select", "counts")

    assert project.query("from counts") == [(ORDERS.message_count,)]


@pytest.mark.parametrize("model", ["orders", "orders_by_time"])
def test_incremental_model(project: Project, model: str) -> None:
    """Each run adds the messages that were offloaded since the last one, and no row twice."""
    values = {"status": ["NEW", "PAID"], "total": [1.5, 2.5]}
    schema = {"type": "JSON", "schema": _avro_schema(), "properties": {}}

    def offload(first: int) -> None:
        times = pa.array([first, first + 1], pa.timestamp("ms", "UTC"))
        rows = pa.table({"__publish_time__": times, **values})
        write_messages("bucket", "json-orders", rows, schema=schema, append=first > 0)

    project.replace("profiles.yml", "url: golden/objects", "url: bucket")
    project.replace("profiles.yml", "metadata: golden", f"schema: {_schema_file(project, schema)}")
    for runs in range(1, 4):
        offload(runs * 1000 if runs > 1 else 0)
        project.run("run", "--select", model)

        topic = open_topic("bucket", "json-orders", schema=schema).to_table([*POSITION, "status"])
        expected = [tuple(row.values()) for row in topic.to_pylist()]
        assert len(expected) == 2 * runs
        columns = ", ".join((*POSITION, "status"))
        rows = project.query(f"select {columns} from {model} order by all")  # noqa: S608 - literals
        assert rows == expected


def test_secrets_stay_in_the_profile(
    project: Project, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Neither dbt's output nor its logs nor what it compiles contain them, even if a run fails."""
    monkeypatch.setenv("DBT_ENV_SECRET_KEY", SECRET)
    project.replace(
        "profiles.yml",
        "metadata: golden",
        "metadata: golden\n            storage_options:"
        " {secret: \"{{ env_var('DBT_ENV_SECRET_KEY') }}\"}",
    )
    project.write("models/missing.sql", "select * from read_pulsar('no-such-topic')")
    project.write("models/wrong.sql", "select no_column from {{ source('pulsar', 'orders') }}")
    project.write("models/option.sql", "select * from read_pulsar('json-orders', value := 'x')")

    failed = project.invoke("--debug", "build", "--log-level-file", "debug")
    assert project.invoke("docs", "generate").success
    assert project.invoke("debug").success

    messages = {each.node.name: each.message for each in failed.result}
    assert "no-such-topic" in messages["missing"]
    assert "no_column" in messages["wrong"]
    assert "value must be" in messages["option"]
    captured = capfd.readouterr()
    assert "dbt_plugin" in captured.out
    assert SECRET not in captured.out + captured.err
    files = [each for each in project.folder.rglob("*") if each.is_file() and not each.is_symlink()]
    assert {"dbt.log", "manifest.json", "revenue.sql"} < {each.name for each in files}
    assert [each for each in files if SECRET.encode() in each.read_bytes()] == []


def test_source_that_names_the_plugin(project: Project) -> None:
    """The error names what to set."""
    call = "external_location: \"read_pulsar('{identifier}')\""
    project.replace("models/sources.yml", call, "plugin: dbt_plugin")

    result = project.invoke("run", "--select", "revenue")

    failed = result.exception or result.result[0].message
    assert "set external_location: \"read_pulsar('json-orders')\"" in str(failed)


def test_settings_of_duckdb_are_no_options(project: Project) -> None:
    """dbt-duckdb adds the profile's `settings` to the configuration of each plugin."""
    project.replace("profiles.yml", "threads: 4", "threads: 4\n      settings: {schema: main}")
    project.run("run", "--select", "revenue")

    project.replace("profiles.yml", "metadata: golden", "meta_data: golden")
    result = project.invoke("run", "--select", "revenue")

    assert "there is no option 'meta_data'" in str(result.exception)


def _avro_schema() -> str:
    fields = [{"name": "status", "type": "string"}, {"name": "total", "type": "double"}]
    return str({"type": "record", "name": "Order", "fields": fields}).replace("'", '"')


def _schema_file(project: Project, schema: dict[str, Any]) -> Path:
    import json

    path = project.folder / "schema.json"
    path.write_text(json.dumps(schema), "utf-8")
    return path
