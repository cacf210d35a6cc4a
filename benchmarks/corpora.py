"""Make a corpus of any size in bounded memory: `python benchmarks/corpora.py tickets.csv`.

The CSV has the columns ``text``, ``size`` and ``label``. Its words follow Zipf's law with a tail
that stays open: the number of distinct words grows about like the square root of the number of
rows. Each class prefers some words and has its own typical size. A share of the rows is Cyrillic;
texts are quoted, and some hold newlines.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

from lancetnic_dask.jit import kernel

ROWS_PER_CHUNK = 20_000
CORE_WORDS = 20_000  # words that every part of the corpus shares
CLASS_WORDS = 40  # words that a class prefers
LONGEST_WORD = 7 * 4 + 1  # bytes: 1e12 in base 85, two Cyrillic letters a syllable, and a space

LATIN = tuple(consonant + vowel for consonant in "bcdfghjklmnprstvz" for vowel in "aeiou")
CYRILLIC = tuple(consonant + vowel for consonant in "бвгджзклмнпрстфхч" for vowel in "аеиоу")


def make_corpus(
    path: Path,
    *,
    num_rows: int,
    num_classes: int = 20,
    words_per_row: int = 60,
    signal: float = 0.06,
    cyrillic: float = 0.2,
    newlines: float = 0.01,
    rare_words: int = 1,
    is_sorted: bool = False,
    seed: int = 0,
) -> None:
    """Write a corpus.

    Parameters
    ----------
    path : Path
        The CSV file.
    num_rows : int
        Rows below the header.
    num_classes : int, default=20
        Labels ``class00`` and so on, equally frequent.
    words_per_row : int, default=60
        Mean number of words; a row has half to one and a half times as many.
    signal : float, default=0.06
        Share of words that come from the class's own.
    cyrillic : float, default=0.2
        Share of rows in Cyrillic letters.
    newlines : float, default=0.01
        Share of spaces that are newlines.
    rare_words : int, default=1
        Scale of the tail without end, where a tenth of the words come from. The number of
        distinct words grows with its square root too: 700 makes about 50,000 in 25,000 rows.
    is_sorted : bool, default=False
        Whether rows come class by class.
    seed : int, default=0
        The same seed makes the same file.
    """
    alphabets = np.stack([_letters(LATIN), _letters(CYRILLIC)])
    # Zipf's law with exponent 1 over the core, as a table to draw from.
    core = (CORE_WORDS ** np.linspace(0, 1, 1 << 16, endpoint=False)).astype(np.int64) - 1
    buffer = np.empty(ROWS_PER_CHUNK * (words_per_row * 3 // 2 * LONGEST_WORD + 64), np.uint8)
    with path.open("wb") as stream:
        stream.write(b"text,size,label\n")
        for start in range(0, num_rows, ROWS_PER_CHUNK):
            rng = np.random.default_rng((seed, start))
            count = min(ROWS_PER_CHUNK, num_rows - start)
            labels = (
                np.arange(start, start + count) * num_classes // num_rows
                if is_sorted
                else rng.integers(0, num_classes, count)
            )
            size = write_rows(
                buffer,
                labels,
                np.exp(rng.normal(5 + labels / num_classes, 0.5)).astype(np.int64),
                rng.integers(words_per_row // 2, words_per_row * 3 // 2 + 1, count),
                rng.random(count) < cyrillic,
                np.array([signal, newlines, rare_words]),
                core,
                alphabets,
                rng.integers(0, 2**63, dtype=np.uint64),
            )
            stream.write(buffer[:size].data)


def _letters(syllables: tuple[str, ...]) -> np.ndarray:
    """Return syllables as bytes: uint8 (85, 5), the length first."""
    table = np.zeros((len(syllables), 5), np.uint8)
    for row, syllable in zip(table, syllables, strict=True):
        encoded = syllable.encode()
        row[0] = len(encoded)
        row[1 : 1 + len(encoded)] = list(encoded)
    return table


@kernel()
def write_rows(
    buffer: np.ndarray,
    labels: np.ndarray,
    sizes: np.ndarray,
    lengths: np.ndarray,
    is_cyrillic: np.ndarray,
    shares: np.ndarray,
    core: np.ndarray,
    alphabets: np.ndarray,
    seed: np.uint64,
) -> int:
    """Draw and spell rows into a buffer of uint8; return how much of it they fill."""
    end = 0
    state = seed
    for row in range(len(labels)):
        alphabet = alphabets[1 if is_cyrillic[row] else 0]
        buffer[end] = 34  # "
        end += 1
        for number in range(lengths[row]):
            state += np.uint64(0x9E3779B97F4A7C15)  # splitmix64 (Steele, Lea and Flood, 2014)
            drawn = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
            drawn = (drawn ^ (drawn >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
            drawn ^= drawn >> np.uint64(31)
            kind = np.float64(drawn & np.uint64(0xFFFF)) / 65536
            space = np.float64((drawn >> np.uint64(16)) & np.uint64(0xFFFF)) / 65536
            choice = drawn >> np.uint64(32)
            if kind < 0.1:  # the tail, without end (Pareto: Zipf with exponent 1.9)
                share = (np.float64(choice) + 1) / 2**32
                rank = len(core) + np.int64(min(shares[2] * share ** (-1 / 0.9), 1e12))
            elif kind > 1 - shares[0]:
                rank = 500 + labels[row] * CLASS_WORDS + np.int64(choice % np.uint64(CLASS_WORDS))
            else:
                rank = core[np.int64(choice & np.uint64(0xFFFF))]
            if number:
                buffer[end] = 10 if space < shares[1] else 32
                end += 1
            end = write_word(buffer, end, int(rank) + 1, alphabet)
        buffer[end] = 34
        buffer[end + 1] = 44  # ,
        end = write_number(buffer, end + 2, sizes[row], 1)
        buffer[end] = 44
        for letter in (99, 108, 97, 115, 115):  # class
            end += 1
            buffer[end] = letter
        end = write_number(buffer, end + 1, labels[row], 2)
        buffer[end] = 10
        end += 1
    return end


@kernel()
def write_word(buffer: np.ndarray, end: int, number: int, alphabet: np.ndarray) -> int:
    """Spell a number in syllables; return where the word ends."""
    while number:
        syllable = alphabet[number % 85]
        number //= 85
        for offset in range(syllable[0]):
            buffer[end] = syllable[1 + offset]
            end += 1
    return end


@kernel()
def write_number(buffer: np.ndarray, end: int, number: int, digits: int) -> int:
    """Write a decimal number with leading zeros; return where it ends."""
    length = digits
    while number >= 10**length:
        length += 1
    for position in range(end + length - 1, end - 1, -1):
        buffer[position] = 48 + number % 10
        number //= 10
    return end + length


def main() -> None:
    """Read the options and write the file."""
    parser = argparse.ArgumentParser(description="Write a corpus.")
    parser.add_argument("path", type=Path)
    parser.add_argument("--rows", type=int, default=40_000)
    parser.add_argument("--classes", type=int, default=20)
    parser.add_argument("--words", type=int, default=60, help="words per row")
    parser.add_argument("--signal", type=float, default=0.06)
    parser.add_argument("--cyrillic", type=float, default=0.2)
    parser.add_argument("--newlines", type=float, default=0.01)
    parser.add_argument("--rare-words", type=int, default=1)
    parser.add_argument("--sorted", action="store_true", help="rows come class by class")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    given.path.parent.mkdir(parents=True, exist_ok=True)
    make_corpus(
        given.path,
        num_rows=given.rows,
        num_classes=given.classes,
        words_per_row=given.words,
        signal=given.signal,
        cyrillic=given.cyrillic,
        newlines=given.newlines,
        rare_words=given.rare_words,
        is_sorted=given.sorted,
        seed=given.seed,
    )
    print(f"{given.path}: {given.rows:,} rows, {given.path.stat().st_size / 1e6:,.1f} MB")


if __name__ == "__main__":
    main()
