"""The plugin of dbt-duckdb, which adds `read_pulsar` to the connections of a dbt project.

A profile names this module under `plugins`, and the options of `register_duckdb` as its `config`. A
source is then a call of the function:

    external_location: "read_pulsar('{identifier}')"

dbt-duckdb writes the call into the compiled statement, so projection and filters reach the bucket,
and each execution reads the current topic. It can also make a view of what a plugin loads, but that
does not work here: dbt-duckdb replaces the view for each model, and DuckDB refuses that if two
threads do it at the same time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

from dbt.adapters.duckdb.plugins import BasePlugin

from arrow_io.errors import OptionError
from connector.engines.duckdb_functions import register_duckdb
from connector.engines.duckdb_registration import add_macros, registered_function

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from dbt.adapters.duckdb.utils import SourceConfig
    from duckdb import DuckDBPyConnection


# Where dbt is not installed, its class is Any.
class Plugin(BasePlugin):  # type: ignore[misc]
    """Adds the table functions of `register_duckdb` to dbt's connections.

    Secrets in the profile's `config` are neither in sources nor in compiled statements.

    Raises:
        OptionError: The profile's `config` has an option that does not exist, or a value that is
            not allowed.
    """

    def initialize(self, plugin_config: Mapping[str, Any]) -> None:
        """Keep the options of the profile; dbt-duckdb adds the settings of DuckDB to them."""
        settings = (self.creds and self.creds.settings) or {}
        self._options: dict[str, Any] = {
            name: value for name, value in plugin_config.items() if settings.get(name) != value
        }

    def configure_connection(self, conn: DuckDBPyConnection) -> None:
        """Register the functions, once for all cursors of the connection.

        Raises:
            OptionError: See `register_duckdb`.
        """
        register_duckdb(conn, **self._options)
        self._function = registered_function(conn)

    def configure_cursor(self, cursor: DuckDBPyConnection) -> None:
        """Add the functions to a cursor, which lacks those of a connection to a database file."""
        assert self._function is not None  # noqa: S101 - dbt-duckdb configures the connection first
        add_macros(cursor, self._function)

    def load(self, source_config: SourceConfig) -> NoReturn:
        """Refuse a source that names the plugin in place of the function.

        Raises:
            OptionError: Always.
        """
        message = (
            f"source {source_config.name} has plugin: {self.name}; set external_location:"
            f" \"read_pulsar('{source_config.identifier}')\" in its place"
        )
        raise OptionError(message)
