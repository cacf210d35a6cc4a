"""PartitionPlan -> a table of its files for a notebook."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from lancetnic_dask.html_repr import HtmlTable

if TYPE_CHECKING:
    from lancetnic_dask.corpus.plan import PartitionPlan

__all__ = ["counted", "file_table"]


def counted(count: int, noun: str) -> str:
    """Return a number of things in words."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def file_table(plan: PartitionPlan) -> HtmlTable:
    """Return partitions, rows and bytes of each file, and of all."""
    from dask.utils import format_bytes

    num_partitions = Counter(partition.file_index for partition in plan.partitions)
    rows = [
        (
            _without_query(planned.file.url),
            num_partitions[index],
            planned.num_rows,
            format_bytes(planned.file.size),
        )
        for index, planned in enumerate(plan.files)
    ]
    size = format_bytes(sum(planned.file.size for planned in plan.files))
    return HtmlTable(
        caption="Files",
        columns=("file", "partitions", "rows", "size"),
        rows=rows,
        total=(counted(len(rows), "file"), len(plan.partitions), plan.num_rows, size),
    )


def _without_query(url: str) -> str:
    """Leave out what follows "?" in a URL: it may be a signature, and notebooks are shared."""
    address, mark, _ = url.partition("?")
    return f"{address}?…" if mark and "://" in address else url
