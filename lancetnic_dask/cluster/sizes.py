"""Measured sizes of our processes -> bytes that a task, a worker and a group need.

Every figure stands here once, with how it was found: Linux x86-64, Python 3.11, torch 2.13 (CPU),
distributed 2026.8. The texts are those of ``benchmarks/corpora.py`` (5.6 bytes a word) unless
another is named. What is made of the sizes is decided in ``budget.py``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = [
    "CLIENT_BASE_BYTES",
    "WORKER_BASE_BYTES",
    "WORKER_COMPILE_BYTES",
    "WORKER_TERMINATE_FRACTION",
    "csr_bytes",
    "csr_most_bytes",
    "largest_fitting",
    "scratch_bytes",
    "shown_bytes",
    "worker_limit",
]

_MIB = 1 << 20
_GIB = 1 << 30

# Anonymous bytes of the client in a training run with a tiny model, beside the model and the
# groups: 347 MiB, 377 if it compiles the kernels of single words; 453 at most (kernels of
# trigrams compiled, four pages of the dashboard opened each second). The last two come together
# in a first run only, and then the reserve is there.
CLIENT_BASE_BYTES = 450 * _MIB

# Resident bytes of a worker that has made one small partition: 285 MiB, 313 after it encoded rows
# too (140 of them are pages of libraries, which all workers share). Resident, because the nanny
# judges by that. The machine code of the kernels was loaded from disk.
WORKER_BASE_BYTES = 320 * _MIB

# What is added where a worker compiles the kernels itself: 65 MiB for single words, 120 for
# trigrams. LLVM does not give it back.
WORKER_COMPILE_BYTES = 120 * _MIB

# Scratch of one partition of 16 MiB being read, tokenized and counted (`count_partition`), or
# encoded, for each of its bytes, beyond the base; the second time, with a fragmented heap.
# It is the rows that cost where they are short: 14.4 for "3,4,a" with a text and a number, 17.4
# with two numbers, 15.6 for 20 numbers, 9.8 for one word a row, 2.5 for 60 words a row.
SCRATCH_PER_TEXT_BYTE = 20
# N-grams cost by the terms they make: 10.6 for (1, 2), 19.6 for (3, 3), 23.1 for (1, 3) and 50.3
# for (1, 5). 32 for (1, 3) of random words of two letters; the base's reserve bears that.
SCRATCH_PER_TERM_OF_TOKEN = 10

# Merging term counts of many small partitions takes this whatever their size.
SCRATCH_MIN_BYTES = 64 * _MIB

# CSR rows (int32 column, float32 value) for each byte of text, as long as nothing is counted.
# Measured: 1.29 for package descriptions, 1.5 for the benchmark's, 0.5 for source code. It is an
# average: 4.0 to 5.3 for rows of a word or two numbers, which `check_groups` finds out.
CSR_PER_TEXT_BYTE = 1.5
# The most: rows of one number and a label of one letter ("1,a"), 28 bytes of 4.
CSR_MOST_PER_TEXT_BYTE = 7

# The nanny restarts a worker above this share of its limit; the other thresholds are turned off.
WORKER_TERMINATE_FRACTION = 0.95


def csr_bytes(partition_bytes: int, terms_per_token: int) -> int:
    """Return what the rows of a partition take on average, as CSR."""
    return int(partition_bytes * CSR_PER_TEXT_BYTE * terms_per_token)


def csr_most_bytes(partition_bytes: int, terms_per_token: int) -> int:
    """Return what the rows of a partition take at most, as CSR."""
    return partition_bytes * CSR_MOST_PER_TEXT_BYTE * terms_per_token


def scratch_bytes(partition_bytes: int, terms_per_token: int) -> int:
    """Return what working on one partition takes beyond the worker's base."""
    per_byte = max(SCRATCH_PER_TEXT_BYTE, SCRATCH_PER_TERM_OF_TOKEN * terms_per_token)
    return max(SCRATCH_MIN_BYTES, partition_bytes * per_byte)


def worker_limit(
    partition_bytes: int,
    *,
    terms_per_token: int,
    in_flight: int,
    num_threads: int = 1,
    compiles: bool = False,
    usable_fraction: float = WORKER_TERMINATE_FRACTION,
) -> int:
    """Return the least memory limit of a worker that works on partitions of this size.

    Parameters
    ----------
    partition_bytes : int
        Text in one partition, in bytes.
    terms_per_token : int
        Term lengths that are counted.
    in_flight : int
        Partitions for each thread: one at work, the others waiting for it or done.
    num_threads : int, default=1
        Partitions that are worked on at once.
    compiles : bool, default=False
        Whether the worker compiles the kernels itself.
    usable_fraction : float, default=0.95
        Share of the limit at which Dask steps in.

    Returns
    -------
    int
        Bytes.
    """
    each = scratch_bytes(partition_bytes, terms_per_token)
    each += in_flight * csr_bytes(partition_bytes, terms_per_token)
    needed = WORKER_BASE_BYTES + num_threads * each + (WORKER_COMPILE_BYTES if compiles else 0)
    return int(needed / usable_fraction) + 1


def largest_fitting(size_of: Callable[[int], int], room_bytes: int, *, stop: int) -> int:
    """Return the largest number below ``stop`` whose size fits, in two digits; 0 if none does.

    Parameters
    ----------
    size_of : callable
        Bytes of a number of things; never falls as the number grows.
    room_bytes : int
        What there is.
    stop : int
        A number that is known not to fit.

    Returns
    -------
    int
        Rounded down to two digits: a figure that can be remembered and surely fits.

    Examples
    --------
    >>> largest_fitting(lambda number: 8 * number, 1000, stop=1000)
    120
    """
    fits, too_many = 0, stop
    while too_many - fits > 1:
        middle = (fits + too_many) // 2
        if size_of(middle) <= room_bytes:
            fits = middle
        else:
            too_many = middle
    unit = int(10 ** max(0, len(str(fits)) - 2))
    return fits // unit * unit


def shown_bytes(size: int) -> str:
    """Show a size in MiB or GiB."""
    return f"{size / _GIB:.2f} GiB" if size >= _GIB else f"{size / _MIB:.0f} MiB"
