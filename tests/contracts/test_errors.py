"""The error tree: as drawn, each class pickles with all its parts."""

from __future__ import annotations

import builtins
import pickle
import re
from typing import Any

import pytest

from lancetnic_dask import errors
from lancetnic_dask.errors import LancetnicError, Location, quoted, suggestion

PLACES = [
    None,
    "Dask's configuration",
    Location("s3://shop/items.csv"),
    Location("s3://shop/items.csv", 48213, "price", 9310447),
]


def all_errors(root: type[LancetnicError] = LancetnicError) -> list[type[LancetnicError]]:
    """Return a class of `errors` and all below it."""
    below = [error for child in root.__subclasses__() for error in all_errors(child)]
    return [root, *below]


def drawn_tree() -> dict[str, tuple[str, str | None]]:
    """Read the tree in the module's docstring: name -> (name of the parent, builtin base)."""
    tree = {}
    path: list[str] = []
    for indent, name, base in re.findall(
        r"^    ([│├└─ ]*)([A-Z]\w+Error)(?: \((\w+)\))?", errors.__doc__ or "", re.MULTILINE
    ):
        depth = len(indent) // 4
        path[depth:] = [name]
        tree[name] = (path[depth - 1] if depth else "Exception", base or None)
    return tree


def test_the_tree_is_drawn_as_it_is() -> None:
    """Each class stands in the drawing under its parent, with the builtin it also is."""
    actual = {}
    for error in all_errors():
        parent, *others = error.__bases__
        actual[error.__name__] = (parent.__name__, others[0].__name__ if others else None)

    assert drawn_tree() == actual
    assert len(actual) == 12


def test_every_error_is_exported() -> None:
    """What a user may want to catch can be imported."""
    names = {error.__name__ for error in all_errors()}

    assert names <= set(errors.__all__)
    assert all(error.__module__ == errors.__name__ for error in all_errors())


def test_every_error_but_the_root_is_a_builtin_that_callers_expect() -> None:
    """`except ValueError` and the like go on working."""
    for error in all_errors()[1:]:
        others = [base for base in error.__mro__ if base not in all_errors()]
        assert others[0] in vars(builtins).values()
        assert others[0] is not Exception


@pytest.mark.parametrize("where", PLACES, ids=str)
@pytest.mark.parametrize("error", all_errors())
def test_an_error_survives_pickling_with_all_its_parts(
    error: type[LancetnicError], where: Location | str | None
) -> None:
    """A worker raises it, the client shows it."""
    raised = error("12,50 is no number.", where, "Pass decimal=','.")

    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        received = pickle.loads(pickle.dumps(raised, protocol))

        assert type(received) is error
        assert received.args == ("12,50 is no number.", where, "Pass decimal=','.")
        assert (received.what, received.where, received.fix) == received.args
        assert str(received) == str(raised)


@pytest.mark.parametrize("error", all_errors())
def test_an_error_needs_no_more_than_what_happened(error: type[LancetnicError]) -> None:
    """Place and remedy may be unknown, after pickling too."""
    received = pickle.loads(pickle.dumps(error("It broke.")))

    assert received.args == ("It broke.", None, "")
    assert str(received) == "It broke."


def test_the_parts_of_a_cache_error_are_not_taken_for_those_of_a_system_call() -> None:
    """OSError takes three arguments for errno, text and file name."""
    error = errors.CacheError("The disk is full.", "/cache", "Free some space.")

    assert (error.errno, error.strerror, error.filename) == (None, None, None)


def test_an_error_is_three_lines() -> None:
    """What, where and what to do."""
    error = errors.RecordError(
        "'12,50 EUR' is not a number.",
        Location("s3://shop/items.csv", 48213, "price", 9310447),
        "Pass decimal=','.",
    )

    assert str(error) == (
        "'12,50 EUR' is not a number.\n"
        "  at s3://shop/items.csv, row 48213, column 'price', byte 9310447\n"
        "  Pass decimal=','."
    )


@pytest.mark.parametrize(
    ("location", "text"),
    [
        (Location("a.csv"), "a.csv"),
        (Location("a.csv", 1), "a.csv, row 1"),
        (Location("a.csv", column="it's"), 'a.csv, column "it\'s"'),
        (Location("a.csv", byte=0), "a.csv, byte 0"),
    ],
)
def test_a_location_tells_what_is_known(location: Location, text: str) -> None:
    """Zero is known, None isn't."""
    assert str(location) == text


@pytest.mark.parametrize("value", ["short", "x" * 58, "x" * 59, "x" * 100_000, b"\xff" * 500, 7])
def test_a_value_in_a_message_has_sixty_characters_at_most(value: Any) -> None:
    """And is its repr if that is no longer; start and end are kept."""
    text = repr(value)

    shown = quoted(value)

    assert shown == (text if len(text) <= 60 else f"{text[:30]}…{text[-29:]}")
    assert len(shown) <= 60


@pytest.mark.parametrize(
    ("name", "known", "text"),
    [
        ("text", [" text ", "label"], "Did you mean ' text '? There are: ' text ', 'label'."),
        ("Text", ["text", "label"], "Did you mean 'text'? There are: 'text', 'label'."),
        ("price", ["text", "label"], "There are: 'text', 'label'."),
        ("price", ["x" * 99], f"There are: {quoted('x' * 99)}."),
        ("c", [f"n{i}" for i in range(21)],
         f"There are: {', '.join(repr(f'n{i}') for i in range(20))} and 1 more."),
    ],
)  # fmt: skip
def test_a_suggestion_names_the_nearest_and_what_there_is(
    name: str, known: list[str], text: str
) -> None:
    """Shortened, so that a header that is no header is not shown in full."""
    assert suggestion(name, known) == text
