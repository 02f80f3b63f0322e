"""`follow_copies`: copies that are repeated for years, by one process at a time.

Each round copies new messages to each table. A table that fails is tried again after a time that
doubles, and does not hold up the others. Rounds share one catalog, which is refreshed: index
objects that were read are not read again.
"""

from __future__ import annotations

import random
import socket
import time
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from arrow_io.errors import LakeTableError, OptionError, PulsarOffloadError, TopicNotFoundError
from arrow_io.storage.redaction import redacted_urls
from connector.catalog.opening import open_catalog
from connector.catalog.snapshot_catalog import SnapshotCatalog
from connector.inputs.topic_names import topic_names
from connector.lake.copy import CopyRequest, has_own_tables
from connector.lake.copy_run import CopyFailure, CopyRun, copy_tables, raise_first
from connector.lake.lease import Lease
from connector.lake.metrics_file import MetricsFile
from connector.options.option import selected_options, takes_options
from connector.options.topic_request import (
    OPTIONS,
    TopicRequest,
    check_options,
    check_with_catalog,
)
from connector.tables.executors import run_in_threads

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Generator, Sequence

    from connector.catalog.catalog import Catalog
    from connector.lake.maintenance import MaintenanceSettings
    from connector.lake.table_copy import ProgressCallback, TableCopy, TableSummary
    from connector.tables.executors import Executor

_MAX_BACKOFF_S: Final = 3600.0
"""Longest time after which a table that failed is tried again, unless the interval is longer."""
_JITTER: Final = 0.1
"""Share of a time that chance adds or removes, so that processes do not run in step."""
_LEASE_INTERVALS: Final = 3
"""Duration of a lease, in intervals."""
_MIN_LEASE_S: Final = 60.0
_PERMANENT: Final = (OptionError, LakeTableError)
"""Errors that do not end by themselves."""


@dataclass(frozen=True, slots=True)
class CopyRound:
    """What one round of `follow_copies` did.

    Attributes:
        number: Number of the round, from 1.
        summaries: The summary of each table that was copied to.
        failures: Each table that was not copied to, or not maintained; each topic that no longer
            exists; or the target, if no table could be copied to or metrics could not be written.
        standby: Tables that another process copies to.
        postponed: Tables that failed earlier and are not tried again yet.
        wait_s: Seconds until the next round.
    """

    number: int
    summaries: list[TableSummary]
    failures: list[CopyFailure]
    standby: list[str]
    postponed: list[str]
    wait_s: float


@takes_options(OPTIONS, secrets=("target_options", "table_options"))
def follow_copies(
    url: str,
    topic: str | Sequence[str],
    target: str,
    *,
    interval: timedelta = timedelta(minutes=5),
    holder: str | None = None,
    maintenance: MaintenanceSettings | None = None,
    metrics_file: str | os.PathLike[str] | None = None,
    on_progress: ProgressCallback | None = None,
    on_table: Callable[[TableSummary], object] | None = None,
    executor: Executor = run_in_threads,
    wait: Callable[[float], object] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
    uniform: Callable[[float, float], float] = random.uniform,
    **options: Any,  # noqa: ANN401 - those of `copy_topics`
) -> Generator[CopyRound, None, None]:
    """Copy the new messages of topics again and again, and yield each round.

    Topics that appear later and match a pattern are copied too. Several processes may follow the
    same topics: a lease in each table's folder lets one of them copy, and another one take over if
    it stops. Close the iterator to stop: the lease is released.

    Args:
        url: Location of the topics, as in `open_topic`.
        topic: Names or patterns of the topics.
        target: URL of the table's folder, as in `copy_topics`.
        interval: Time from the start of a round to the start of the next one. It varies by a tenth.
        holder: Name of this process in the lease. By default, the name of the machine. A process
            that starts again with the same name need not wait for its old lease to expire.
        maintenance: See `copy_topics`.
        metrics_file: See `copy_topics`. The file is written after each round.
        on_progress: See `copy_topics`.
        on_table: See `copy_topics`.
        executor: See `copy_topics`.
        wait: Waits for a number of seconds. If it returns a true value, the iterator ends.
        clock: Returns a time in seconds that never goes back.
        uniform: Returns a random number between two numbers.
        options: Other options of `copy_topics`, including those of `open_topic`.

    Yields:
        Each round, before the wait for the next one.

    Raises:
        OptionError: An option is not allowed, a library is not installed, or the metadata is a
            catalog snapshot, which never has new ledgers. Once a round was carried out, such an
            error is a failure of the round.
        TopicNotFoundError: There is no such topic yet.
        PulsarOffloadError: No table can be copied to, and each of these errors is permanent: an
            `OptionError` or `LakeTableError`.
    """
    own = selected_options(CopyRequest.__dataclass_fields__, options)
    topic_options = {name: each for name, each in options.items() if name not in own}
    check_options(topic_options)
    if interval <= timedelta():
        message = f"interval must be longer than 0: {interval}"
        raise OptionError(message)
    request = CopyRequest(url=url, topic=topic, target=target, topic_options=topic_options, **own)

    def report_table(summary: TableSummary) -> None:
        now = datetime.now(UTC).isoformat(timespec="milliseconds")
        run.leases[summary.target].renew(last_success=now, lag_bytes=summary.lag_bytes)
        if on_table is not None:
            on_table(summary)

    run = _FollowingRun(
        maintenance=maintenance,
        on_progress=on_progress,
        on_table=report_table,
        executor=executor,
        holder=holder or socket.gethostname(),
        lease_s=max(_LEASE_INTERVALS * interval.total_seconds(), _MIN_LEASE_S),
        clock=clock,
    )
    follower = _Follower(request, run, metrics_file, interval.total_seconds(), uniform)
    try:
        while True:
            copy_round = follower.copy_round()
            yield copy_round
            if wait(copy_round.wait_s):
                return
    finally:
        run.release()


@dataclass(frozen=True, slots=True)
class _Backoff:
    """A table that failed several times in a row, and when it is tried again."""

    failures: int
    due_s: float
    is_permanent: bool


@dataclass(frozen=True, kw_only=True)
class _FollowingRun(CopyRun):
    """The state of the rounds.

    Attributes:
        holder: Name of this process in leases.
        lease_s: Duration of a lease in seconds.
        clock: Returns a time in seconds that never goes back.
        backoffs: The tables that failed, by name.
        leases: The leases that this process holds or waits for, by the table's folder.
        standby: Names of the tables that another process copies to in this round.
        postponed: Names of the tables that are not tried again in this round, and their topics.
    """

    holder: str
    lease_s: float
    clock: Callable[[], float]
    backoffs: dict[str, _Backoff] = field(default_factory=dict)
    leases: dict[str, Lease] = field(default_factory=dict)
    standby: list[str] = field(default_factory=list)
    postponed: list[tuple[str, str]] = field(default_factory=list)

    def open_copy(
        self, table: str, topic: str, open_copy: Callable[[], TableCopy]
    ) -> TableCopy | None:
        backoff = self.backoffs.get(table)
        if backoff is not None and self.clock() < backoff.due_s:
            self.postponed.append((table, topic))
            return None
        copy = CopyRun.open_copy(self, table, topic, open_copy)
        assert copy is not None  # noqa: S101 - the base leaves out no table
        location = copy.table.location
        lease = self.leases.get(str(location))
        if lease is None:
            lease = Lease(location, self.holder, self.lease_s, self.clock)
            self.leases[str(location)] = lease
        if not lease.acquire():
            self.standby.append(table)
            return None

        def report(copied_bytes: int, total_bytes: int) -> None:
            lease.renew()
            if self.on_progress is not None:
                self.on_progress(copied_bytes, total_bytes)

        return replace(copy, on_progress=report)

    def release(self) -> None:
        for each in self.leases.values():
            each.release()


class _Follower:
    """Copies round after round."""

    def __init__(
        self,
        request: CopyRequest,
        run: _FollowingRun,
        metrics_file: str | os.PathLike[str] | None,
        interval_s: float,
        uniform: Callable[[float, float], float],
    ) -> None:
        self._request, self._run = request, run
        self._metrics_file = metrics_file
        self._interval_s = interval_s
        self._uniform = uniform
        self._catalog: Catalog | None = None
        self._number = 0
        self._failed_rounds = 0
        self._has_copied = False

    def copy_round(self) -> CopyRound:
        start_s = self._run.clock()
        self._number += 1
        self._run.standby.clear()
        self._run.postponed.clear()
        target = redacted_urls(self._request.target)
        topics = ", ".join(topic_names(self._request.topic))
        others: list[CopyFailure] = []
        is_copied = False
        try:
            with MetricsFile(self._metrics_file, target, topics) as metrics:
                request, others = self._existing_topics(self._refreshed_request())
                summaries, failures = copy_tables(request, self._run, metrics)
                is_copied = True
                for each in others:
                    metrics.note_failure(each.table, each.topic, each.error)
                for table, topic in self._run.postponed:
                    metrics.note_omission(table, topic)
        except PulsarOffloadError as error:
            # Once a round has been carried out, its options are right.
            if not self._has_copied and isinstance(error, (*_PERMANENT, TopicNotFoundError)):
                raise
            others = [*others, CopyFailure(target, topics, error)]
            if not is_copied:
                self._failed_rounds += 1
                return self._round([], others, self._backoff_s(self._failed_rounds))
        self._failed_rounds = 0
        self._has_copied = True
        self._note_failures(summaries, failures)
        next_s = start_s + self._interval_s * self._uniform(1 - _JITTER, 1 + _JITTER)
        wait_s = max(0.0, next_s - self._run.clock())
        return self._round(summaries, [*failures, *others], wait_s)

    def _round(
        self, summaries: list[TableSummary], failures: list[CopyFailure], wait_s: float
    ) -> CopyRound:
        postponed = [table for table, _ in self._run.postponed]
        standby = list(self._run.standby)
        return CopyRound(self._number, summaries, failures, standby, postponed, wait_s)

    def _refreshed_request(self) -> CopyRequest:
        """Return the request with a catalog of the current bucket."""
        request = self._request
        if self._catalog is None:
            values: dict[str, Any] = dict(request.topic_options)
            options = TopicRequest(**values)
            check_with_catalog(request.url, options)
            self._catalog = options.catalog or open_catalog(
                request.url, **options.catalog_options()
            )
        else:
            self._catalog = self._catalog.refreshed()
        if isinstance(self._catalog, SnapshotCatalog):
            message = (
                "the metadata is a catalog snapshot, which never has new ledgers: give the metadata"
                " itself to follow topics"
            )
            raise OptionError(message)
        topic_options = {
            name: each
            for name, each in request.topic_options.items()
            if not OPTIONS[name].is_fixed_by_catalog
        }
        return replace(request, topic_options=topic_options | {"catalog": self._catalog})

    def _existing_topics(self, request: CopyRequest) -> tuple[CopyRequest, list[CopyFailure]]:
        """Leave out topics that no longer exist, if each topic has its own table.

        Returns:
            The request, and the failure of each name or pattern that is left out.
        """
        # A table that topics share has columns that depend on how many are named.
        if not self._has_copied or not has_own_tables(request.target):
            return request, []
        assert self._catalog is not None  # noqa: S101 - it was refreshed
        names = topic_names(request.topic)
        with suppress(TopicNotFoundError):
            self._catalog.select_names(names)
            return request, []
        existing: list[str] = []
        failures: list[CopyFailure] = []
        for each in names:
            try:
                self._catalog.select_names(each)
            except TopicNotFoundError as error:
                failures.append(CopyFailure(redacted_urls(request.target), each, error))
            else:
                existing.append(each)
        # If none exists, the copy says so.
        return (replace(request, topic=existing), failures) if existing else (request, [])

    def _note_failures(
        self, summaries: list[TableSummary], failures: Sequence[CopyFailure]
    ) -> None:
        """Postpone tables that failed. Raise if none is left that may be copied to again."""
        run = self._run
        earlier = dict(run.backoffs)
        postponed = {table for table, _ in run.postponed}
        run.backoffs.clear()
        run.backoffs.update({table: earlier[table] for table in postponed})
        for each in failures:
            if not each.is_copied:
                count = earlier[each.table].failures + 1 if each.table in earlier else 1
                # The first time, the next round tries again.
                due_s = run.clock() + (self._backoff_s(count - 1) if count > 1 else 0.0)
                is_permanent = isinstance(each.error, _PERMANENT)
                run.backoffs[each.table] = _Backoff(count, due_s, is_permanent)
        is_over = run.backoffs and all(each.is_permanent for each in run.backoffs.values())
        if failures and is_over and not summaries and not run.standby:
            raise_first(failures, 0)

    def _backoff_s(self, failures: int) -> float:
        """Return after how many seconds to try again after some failures in a row."""
        doubled_s = self._interval_s * 2.0 ** min(failures - 1, 32)
        longest_s = max(_MAX_BACKOFF_S, self._interval_s)
        return min(doubled_s, longest_s) * self._uniform(1 - _JITTER, 1)
