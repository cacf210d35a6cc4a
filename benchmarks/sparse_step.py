"""Rows a second of one training step: ours against torch's own ways, and threads against threads.

    python benchmarks/sparse_step.py                 speed of steps and kernels
    python benchmarks/sparse_step.py --busy          the same while another process keeps a core
    python benchmarks/sparse_step.py --accuracy      accuracy after each of 5 epochs (or --sweep)

The corpus is made here: Zipf-distributed terms, some of them typical of the row's class, TF-IDF
weights. All ways of one table run in the same process, by turns. Ratios count; absolute times are
those of the machine. Ours takes one thread of torch, as in a run; each way of torch is compared
at the number of threads that is best for it. Only the first command writes the report whose
ratios are kept.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from unittest import mock

import numba
import numpy as np
import torch
from report import BUILD, Report
from torch import nn

from lancetnic_dask.jit import kernel
from lancetnic_dask.models import ScalpelMC, SparseLinear, SparseRows
from lancetnic_dask.models import factored_gradient as gradient_module
from lancetnic_dask.models import rowwise_adagrad as rowwise_module
from lancetnic_dask.models import sparse_linear as linear_module
from lancetnic_dask.models.factored_gradient import GradientFactors, weighted_sums
from lancetnic_dask.models.optimizers import make_optimizer
from lancetnic_dask.models.sparse_kernels import (
    ColumnCounter,
    update_rows,
    update_rows_by_factors,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import numpy.typing as npt

NUM_CLASSES = 58
HIDDEN = 256
BATCH = 128
OURS = "ours, torch 1"
TORCH_THREADS = (1, 2)


class Corpus(NamedTuple):
    """Rows with their classes, int64 (num_rows,)."""

    rows: SparseRows
    target: npt.NDArray[np.int64]


def make_corpus(num_rows: int, num_columns: int, *, seed: int) -> Corpus:
    """Draw rows of about 60 different terms, a tenth of them typical of the row's class."""
    rng = np.random.default_rng(seed)
    cumulative = np.cumsum(1 / np.arange(1, num_columns + 1))
    cumulative /= cumulative[-1]
    typical = rng.integers(100, num_columns // 2, size=(NUM_CLASSES, 1500))
    target = rng.integers(0, NUM_CLASSES, num_rows)
    indptr, indices, counts = [np.zeros(1, np.int64)], [], []
    for first in range(0, num_rows, 10_000):  # in blocks: the draws take 10 times the result
        classes = target[first : first + 10_000]
        row = np.repeat(np.arange(len(classes)), rng.poisson(72, len(classes)))
        term = np.searchsorted(cumulative, rng.random(len(row)))
        is_typical = rng.random(len(row)) < 0.2 * rng.random(len(classes))[row]
        term[is_typical] = typical[classes[row], rng.integers(0, 1500, len(row))][is_typical]
        cell, count = np.unique(row * num_columns + term, return_counts=True)
        indices.append((cell % num_columns).astype(np.int32))
        counts.append(count.astype(np.float32))
        per_row = np.bincount(cell // num_columns, minlength=len(classes))
        indptr.append(indptr[-1][-1] + np.cumsum(per_row))
    all_indptr, all_indices = np.concatenate(indptr), np.concatenate(indices)
    df = np.bincount(all_indices, minlength=num_columns)
    values = np.concatenate(counts) * np.log((1 + num_rows) / (1 + df) + 1)[all_indices]
    squares = np.add.reduceat(np.append(values**2, 0), all_indptr[:-1])
    values /= np.sqrt(np.repeat(squares, np.diff(all_indptr)))
    numeric = np.zeros((num_rows, 0), np.float32)
    return Corpus(SparseRows(all_indptr, all_indices, values.astype(np.float32), numeric), target)


def take(corpus: Corpus, order: npt.NDArray[np.int64]) -> Corpus:
    """Return some rows in the given order."""
    lengths = np.diff(corpus.rows.indptr)[order]
    indptr = np.append(0, np.cumsum(lengths))
    entries = np.arange(indptr[-1]) + np.repeat(corpus.rows.indptr[order] - indptr[:-1], lengths)
    rows = SparseRows(
        indptr,
        corpus.rows.indices[entries],
        corpus.rows.values[entries],
        corpus.rows.numeric[order],
    )
    return Corpus(rows, corpus.target[order])


def iter_batches(corpus: Corpus) -> Iterator[tuple[SparseRows, torch.Tensor]]:
    """Cut rows into batches, as views."""
    rows = corpus.rows
    for first in range(0, rows.num_rows, BATCH):
        indptr = rows.indptr[first : first + BATCH + 1]
        cut = slice(indptr[0], indptr[-1])
        numeric = rows.numeric[first : first + BATCH]
        batch = SparseRows(indptr - indptr[0], rows.indices[cut], rows.values[cut], numeric)
        yield batch, torch.from_numpy(corpus.target[first : first + BATCH])


class TorchModel(nn.Module):
    """The network of ScalpelMC on a first layer of torch, with what hands it the rows."""

    def __init__(self, first: nn.Module, read: Callable[[SparseRows], torch.Tensor]) -> None:
        super().__init__()
        self.first = first
        self.read = read
        self.rest = nn.Sequential(nn.ReLU(), nn.Dropout(0.2), nn.Linear(HIDDEN, NUM_CLASSES))

    def forward(self, rows: SparseRows) -> torch.Tensor:
        """Score the classes."""
        scores: torch.Tensor = self.rest(self.read(rows))
        return scores


class Way(NamedTuple):
    """One way to train: a model, its optimizers, and the batches that it gets in a round."""

    model: nn.Module
    optimizers: list[torch.optim.Optimizer]
    num_batches: int

    def train(self, batches: list[tuple[SparseRows, torch.Tensor]]) -> float:
        """Train on the first batches; return rows a second."""
        used = batches[: self.num_batches]
        start = time.perf_counter()
        for rows, target in used:
            for optimizer in self.optimizers:
                optimizer.zero_grad()
            loss = nn.functional.cross_entropy(self.model(rows), target)
            loss.backward()  # type: ignore[no-untyped-call]
            for optimizer in self.optimizers:
                optimizer.step()
        return sum(len(target) for _, target in used) / (time.perf_counter() - start)


def first_layer(model: ScalpelMC) -> SparseLinear:
    """Return the layer that reads sparse rows."""
    (layer,) = (one for one in model.modules() if isinstance(one, SparseLinear))
    return layer


def make_ours(num_columns: int, num_batches: int, *, keeps: bool = True) -> Way:
    """Return SparseLinear with the "auto" optimizer, its gradients as factors or written down."""
    torch.manual_seed(0)
    model = ScalpelMC(num_columns, HIDDEN, 1, NUM_CLASSES, 0.2)
    if keeps:
        first_layer(model).keeps_factors = True
    return Way(model, [make_optimizer(model)], num_batches)


def make_bag(num_columns: int, num_batches: int, sparse: Callable[..., Any]) -> Way:
    """Return EmbeddingBag with a sparse optimizer of torch."""
    bag = nn.EmbeddingBag(num_columns, HIDDEN, mode="sum", sparse=True, include_last_offset=True)

    def read(rows: SparseRows) -> torch.Tensor:
        starts = torch.from_numpy(rows.indptr).int()
        weights = torch.from_numpy(rows.values)
        product: torch.Tensor = bag(torch.from_numpy(rows.indices), starts, weights)
        return product

    model = TorchModel(bag, read)
    # What ours has for its dense part, too.
    dense = torch.optim.Adam(model.rest.parameters(), fused=True)
    return Way(model, [sparse(list(bag.parameters())), dense], num_batches)


def make_dense(num_columns: int) -> Way:
    """Return nn.Linear with Adam: what lancetnic does; a few steps are enough."""
    linear = nn.Linear(num_columns, HIDDEN)
    model = TorchModel(linear, lambda rows: linear(rows.to_dense(num_columns)))
    return Way(model, [torch.optim.Adam(model.parameters())], 2)


def add_weighted(table: Any, starts: Any, indices: Any, values: Any, sums: Any) -> None:
    """Sum rows of a table, two at a time: what embedding_bag is compared with."""
    for group in numba.prange(len(starts) - 1):
        out, entry, stop = sums[group], starts[group], starts[group + 1]
        out[:] = 0
        while entry + 2 <= stop:
            first, second = table[indices[entry]], table[indices[entry + 1]]
            for k in range(len(out)):
                out[k] += values[entry] * first[k] + values[entry + 1] * second[k]
            entry += 2
        if entry < stop:
            first = table[indices[entry]]
            for k in range(len(out)):
                out[k] += values[entry] * first[k]


add_weighted_parallel = kernel(parallel=True, fastmath=True)(add_weighted)


def update_in_parallel(weight: Any, sums: Any, rows: Any, grads: Any, lr: Any, eps: Any) -> None:
    """Do what update_rows does on several threads."""
    for i in numba.prange(len(rows)):
        update_rows(weight, sums, rows[i : i + 1], grads[i : i + 1], lr, eps)


update_rows_parallel = kernel(parallel=True, fastmath=True)(update_in_parallel)


def sum_with_numba(
    table: torch.Tensor, starts: torch.Tensor, indices: torch.Tensor, values: torch.Tensor
) -> torch.Tensor:
    """Stand in for the sums of SparseLinear."""
    sums = np.empty((len(starts) - 1, table.shape[1]), np.float32)
    add_weighted_parallel(table.numpy(), starts.numpy(), indices.numpy(), values.numpy(), sums)
    return torch.from_numpy(sums)


@contextlib.contextmanager
def kernels_of(kind: str) -> Iterator[None]:
    """Run ours as it is, or with sums and update by parallel Numba."""
    if kind != "in parallel":
        yield
        return
    with (
        mock.patch.object(rowwise_module, "update_rows", update_rows_parallel),
        mock.patch.object(linear_module, "weighted_sums", sum_with_numba),
        mock.patch.object(gradient_module, "weighted_sums", sum_with_numba),
    ):
        yield


def time_steps(corpus: Corpus, num_columns: int, *, rounds: int) -> dict[str, float]:
    """Return the median rows a second of each way, taken by turns."""
    batches = list(iter_batches(corpus))[:60]
    ours = make_ours(num_columns, len(batches))
    written = make_ours(num_columns, len(batches), keeps=False)
    ways: dict[str, tuple[Way, str, int, int]] = {}
    for threads in TORCH_THREADS:
        ways[f"ours, torch {threads}"] = (ours, "as shipped", threads, 1)
        ways[f"ours, gradient written down, torch {threads}"] = (written, "", threads, 1)
    for threads, numba_threads in ((1, 1), (1, 2), (2, 1), (2, 2)):
        name = f"ours in parallel numba {numba_threads}, torch {threads}"
        ways[name] = (written, "in parallel", threads, numba_threads)
    adagrad = make_bag(num_columns, 15, torch.optim.Adagrad)
    sparse_adam = make_bag(num_columns, 15, torch.optim.SparseAdam)
    dense = make_dense(num_columns)
    for threads in TORCH_THREADS:
        ways[f"EmbeddingBag + Adagrad, torch {threads}"] = (adagrad, "", threads, 1)
        ways[f"EmbeddingBag + SparseAdam, torch {threads}"] = (sparse_adam, "", threads, 1)
        ways[f"nn.Linear + Adam, torch {threads}"] = (dense, "", threads, 1)
    speeds: dict[str, list[float]] = {name: [] for name in ways}
    for turn in range(rounds + 1):  # the first compiles and warms up
        for name, (way, kind, threads, numba_threads) in ways.items():
            torch.set_num_threads(threads)
            numba.set_num_threads(numba_threads)
            with kernels_of(kind):
                speed = way.train(batches)
            if turn:
                speeds[name].append(speed)
    return {name: statistics.median(values) for name, values in speeds.items()}


def time_kernels(corpus: Corpus, num_columns: int) -> dict[str, float]:
    """Return microseconds a batch of each part and its alternatives, on one thread."""
    torch.set_num_threads(1)
    numba.set_num_threads(1)
    batches = [rows for rows, _ in iter_batches(corpus)][:30]
    weight, out_grad = torch.randn(num_columns, HIDDEN), torch.randn(BATCH, HIDDEN)
    counter = ColumnCounter(num_columns)
    groups = [counter.group(rows.indptr, rows.indices, rows.values) for rows in batches]
    forward = [
        [
            torch.from_numpy(part)
            for part in (rows.indptr.astype(np.int32), rows.indices, rows.values)
        ]
        for rows in batches
    ]
    backward = [[torch.from_numpy(part) for part in group[1:]] for group in groups]
    touched = [torch.from_numpy(group.columns).long() for group in groups]
    gradients = [torch.randn(len(columns), HIDDEN) for columns in touched]
    state = torch.zeros(num_columns)
    lr, eps = np.float32(1e-6), np.float32(1e-10)
    bag = weighted_sums
    spread = [torch.repeat_interleave(torch.arange(len(g[0]) - 1), g[0].diff()) for g in backward]

    def multiply_csr(i: int) -> None:
        starts, indices, values = forward[i]
        shape = (len(starts) - 1, num_columns)
        _ = torch.sparse_csr_tensor(starts, indices, values, shape) @ weight

    def add_by_index(i: int) -> None:
        terms = out_grad[backward[i][1]] * backward[i][2].unsqueeze(1)
        torch.zeros(len(touched[i]), HIDDEN).index_add_(0, spread[i], terms)

    def update_torch_sparse(i: int) -> None:
        mean_squares = gradients[i].square().mean(dim=1)
        sums = state[touched[i]].add_(mean_squares)
        state[touched[i]] = sums
        change = gradients[i] * (1e-6 / (sums.sqrt() + 1e-10)).unsqueeze(1)
        shape = (num_columns, HIDDEN)
        weight.sub_(
            torch.sparse_coo_tensor(
                touched[i][None], change, shape, is_coalesced=True, check_invariants=False
            )
        )

    def write_and_update(i: int) -> None:
        factors = GradientFactors(groups[i], out_grad)
        sums, rows = factors.row_sums(), factors.columns
        update_rows(weight.numpy(), state.numpy(), rows.numpy(), sums.numpy(), lr, eps)

    parts: dict[str, Callable[[int], object]] = {
        "forward: embedding_bag (ours)": lambda i: bag(weight, *forward[i]),
        "forward: numba": lambda i: sum_with_numba(weight, *forward[i]),
        "forward: torch sparse_csr @": multiply_csr,
        "group: numba counting sort (ours)": lambda i: counter.group(
            batches[i].indptr, batches[i].indices, batches[i].values
        ),
        "group: numpy argsort": lambda i: np.argsort(batches[i].indices, kind="stable"),
        "group: torch.sort": lambda i: torch.sort(forward[i][1], stable=True),
        "row sums: embedding_bag (ours)": lambda i: bag(out_grad, *backward[i]),
        "row sums: numba": lambda i: sum_with_numba(out_grad, *backward[i]),
        "row sums: torch index_add_": add_by_index,
        "update: numba (ours)": lambda i: update_rows(
            weight.numpy(), state.numpy(), touched[i].numpy(), gradients[i].numpy(), lr, eps
        ),
        "update: torch sparse add": update_torch_sparse,
        "row sums and update: one after the other": write_and_update,
        "row sums and update: in one (ours)": lambda i: update_rows_by_factors(
            weight.numpy(), state.numpy(), *groups[i], out_grad.numpy(), lr, eps
        ),
    }
    times = {}
    for name, part in parts.items():
        turns = []
        for _ in range(8):
            start = time.perf_counter()
            for i in range(len(batches)):
                part(i)
            turns.append((time.perf_counter() - start) / len(batches) * 1e6)
        times[name] = statistics.median(turns[1:])
    return times


def measure_accuracy(
    corpus: Corpus, num_columns: int, *, row_wise: tuple[float, float] | None
) -> list[float]:
    """Return the accuracy on a fifth of the rows after each of 5 epochs."""
    torch.set_num_threads(1)
    num_train = corpus.rows.num_rows * 4 // 5
    validation = take(corpus, np.arange(num_train, corpus.rows.num_rows))
    way = make_ours(num_columns, sys.maxsize)
    if row_wise is not None:
        for group in way.optimizers[0].param_groups:
            if "betas" not in group:
                group["lr"], group["eps"] = row_wise
    accuracies = []
    for epoch in range(5):
        order = np.random.default_rng((0, epoch)).permutation(num_train)
        way.model.train()
        way.train(list(iter_batches(take(corpus, order))))
        way.model.eval()
        with torch.no_grad():
            right = sum(
                int((way.model(rows).argmax(1) == target).sum())
                for rows, target in iter_batches(validation)
            )
        accuracies.append(right / validation.rows.num_rows)
    return accuracies


@contextlib.contextmanager
def busy_neighbour(*, start: bool) -> Iterator[None]:
    """Keep one core busy with another process."""
    if not start:
        yield
        return
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as process:
        try:
            yield
        finally:
            process.kill()


def peer_speeds(speeds: dict[str, float]) -> dict[str, list[float]]:
    """Return the speeds of torch's own ways, by way: one for each number of threads."""
    peers: dict[str, list[float]] = {}
    for name, speed in speeds.items():
        if not name.startswith("ours"):
            peers.setdefault(name.rpartition(", torch ")[0], []).append(speed)
    return peers


def note_ratios(report: Report, speeds: dict[str, float], kernels: dict[str, float]) -> None:
    """Put the ratios of torch's ways, and of other kernels, to ours into the report."""
    peers = peer_speeds(speeds)
    report.table(
        ("rows/s", *(f"torch {threads}" for threads in TORCH_THREADS), "ours over its best"),
        [(name, *both, speeds[OURS] / max(both)) for name, both in peers.items()],
    )
    for name, both in peers.items():
        report.ratio(f"step: ours over {name}, at its best threads", speeds[OURS] / max(both))
    ours = {name.split(":")[0]: time for name, time in kernels.items() if name.endswith("(ours)")}
    for name, microseconds in kernels.items():
        if not name.endswith("(ours)"):
            report.ratio(f"time of {name} over ours", microseconds / ours[name.split(":")[0]])


def main() -> None:
    """Measure what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--columns", type=int, default=80_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--busy", action="store_true", help="keep one core busy: no report")
    parser.add_argument("--accuracy", action="store_true", help="5 epochs with the defaults")
    parser.add_argument("--sweep", action="store_true", help="5 epochs for each of some lr and eps")
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    parser.add_argument("--folder", type=Path, default=BUILD, help="for the report")
    options = parser.parse_args()
    corpus = make_corpus(options.rows, options.columns, seed=options.seed)
    print(f"{corpus.rows.num_rows} rows, {len(corpus.rows.indices) / options.rows:.0f} terms a row")
    figures: dict[str, Any] = {}
    if options.accuracy or options.sweep:
        rates = [None, *((lr, 1e-10) for lr in (0.01, 0.02, 0.035, 0.05, 0.1)), (0.035, 1e-6)]
        for row_wise in rates if options.sweep else rates[:1]:
            name = "defaults" if row_wise is None else f"lr {row_wise[0]}, eps {row_wise[1]}"
            figures[name] = measure_accuracy(corpus, options.columns, row_wise=row_wise)
            print(f"{name:24}", *(f"{accuracy:.4f}" for accuracy in figures[name]))
    else:
        names = ("rows", "columns", "rounds", "seed")
        sizes = {"hidden": HIDDEN, "batch": BATCH, "num_classes": NUM_CLASSES}
        settings = {**{name: getattr(options, name) for name in names}, **sizes}
        report = Report("sparse_step", settings)
        with busy_neighbour(start=options.busy):
            speeds = time_steps(corpus, options.columns, rounds=options.rounds)
            kernels = time_kernels(corpus, options.columns)
        figures = {"busy": options.busy, "rows_per_second": speeds, "kernel_us": kernels}
        reference = speeds[OURS]
        for name, speed in speeds.items():
            print(f"{name:44} {speed:9,.0f} rows/s  x{reference / speed:7.2f}")
        for name, microseconds in kernels.items():
            print(f"{name:44} {microseconds:9,.0f} us a batch")
        note_ratios(report, speeds, kernels)
        report.figures.update(figures)
        if options.busy:
            print("\nNo report: the kept ratios are those without a busy neighbour.")
        else:
            report.finish(options.folder)
    if options.json:
        options.json.write_text(json.dumps(figures, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
