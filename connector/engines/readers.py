"""Functions that read a topic with the workers of Daft, Dask and Ray, each imported when called."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from arrow_io.errors import OptionError

if TYPE_CHECKING:
    import daft
    import dask.dataframe as dd
    import ray.data

    from connector.dataset import TopicDataset

_DAFT_TASK_BYTES: Final = 32 << 20
"""Daft decodes a task without waiting for its consumer, so a task should fit in memory."""
_REQUIREMENTS: Final = {"daft": "daft", "dask": "dask[dataframe]", "ray": "ray[data]"}


def read_daft(dataset: TopicDataset, *, task_bytes: int = _DAFT_TASK_BYTES) -> daft.DataFrame:
    """Return a lazy Daft data frame of a topic, read by Daft's threads or workers.

    Daft's projections, filters and limits reach the reader. A filter on integers, texts, bytes,
    booleans, dates and times is applied before other columns are decoded. Daft itself applies each
    filter again, and all others: it compares NaN and -0.0, for example, otherwise than Arrow.

    Warns with `IncompleteReadWarning` about losses that were found when the topic was opened. For
    other losses, the process that reads a task warns.

    Args:
        dataset: A topic, as `open_topic` returns it; also a filtered one.
        task_bytes: Approximate size of a task, in bytes of data objects. Daft keeps the decoded
            rows of several tasks in memory.

    Raises:
        OptionError: Daft is not installed.
        PulsarOffloadError: The rows of `view="latest"` cannot be found.
    """
    source = _import("daft", "read_daft")
    dataset.scanner().warn_of_plan()
    return source.TopicSource(dataset, task_bytes).read()


def read_dask(dataset: TopicDataset, *, task_bytes: int | None = None) -> dd.DataFrame:
    """Return a Dask data frame of a topic, with Arrow's types (`pandas.ArrowDtype`).

    Dask decodes only the columns that a computation needs. It has no filters for sources: filter
    the dataset instead, as in `read_dask(dataset.filter(expression))`.

    Warns with `IncompleteReadWarning` about losses that were found when the topic was opened. For
    other losses, the process that reads a partition warns.

    Args:
        dataset: A topic, as `open_topic` returns it; also a filtered one.
        task_bytes: Approximate size of a partition, in bytes of data objects. None chooses by the
            size of the topic.

    Raises:
        OptionError: Dask is not installed.
        PulsarOffloadError: Statistics, or the messages of a view, cannot be read.
    """
    source = _import("dask", "read_dask")
    dataset.scanner().warn_of_plan()
    return source.data_frame(dataset, task_bytes)


def read_ray(
    dataset: TopicDataset,
    *,
    task_bytes: int | None = None,
    **options: Any,  # noqa: ANN401 - of Ray
) -> ray.data.Dataset:
    """Return a Ray dataset of a topic, read by Ray's workers.

    Selected columns (`select_columns`) and expressions of `filter(expr=…)` reach the reader.

    Warns with `IncompleteReadWarning` about losses that were found when the topic was opened. For
    other losses, the worker that reads a task warns; Ray shows the standard error of its workers on
    the driver.

    Args:
        dataset: A topic, as `open_topic` returns it; also a filtered one.
        task_bytes: Approximate size of a read task, in bytes of data objects. None chooses by the
            size of the topic.
        options: Options of `ray.data.read_datasource`, such as `concurrency`.

    Raises:
        OptionError: Ray is not installed.
        PulsarOffloadError: The rows of `view="latest"` cannot be found.
    """
    source = _import("ray", "read_ray")
    dataset.scanner().warn_of_plan()
    return source.read(dataset.scan, task_bytes, **options)


def _import(library: str, function: str) -> Any:  # noqa: ANN401 - a module
    """Return the module with the source for a library.

    Raises:
        OptionError: The library is not installed.
    """
    try:
        return import_module(f"connector.engines.{library}_source")
    except ModuleNotFoundError as error:
        if error.name is None or error.name.startswith("connector."):
            raise
        message = (
            f"{function} needs {error.name}, which is not installed:"
            f" pip install '{_REQUIREMENTS[library]}'"
        )
        raise OptionError(message) from error
