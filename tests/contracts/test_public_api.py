"""What the package exports, what importing it costs, and what its docstrings say."""

from __future__ import annotations

import ast
import importlib
import inspect
import pkgutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from numpydoc.docscrape import FunctionDoc, NumpyDocString

import lancetnic_dask

PACKAGE = Path(lancetnic_dask.__file__).parent
MODULES = sorted(
    module.name for module in pkgutil.walk_packages([str(PACKAGE)], prefix="lancetnic_dask.")
)


def public_callables() -> list[tuple[str, Any]]:
    """Return every exported name that can be called, and the public methods of classes."""
    found = []
    for name in lancetnic_dask.__all__:
        value = getattr(lancetnic_dask, name)
        found.append((name, value))
        if inspect.isclass(value):
            for method, function in inspect.getmembers(value, inspect.isroutine):
                if not method.startswith("_") and method in vars(value):
                    found.append((f"{name}.{method}", function))
    return found


def test_the_exported_names_are_these() -> None:
    """The public API is small, and growing it is a decision."""
    assert lancetnic_dask.__all__ == [
        "Classification",
        "Corpus",
        "LancetnicError",
        "Model",
        "Run",
        "load",
    ]
    for name in lancetnic_dask.__all__:
        assert name in dir(lancetnic_dask)
        assert getattr(lancetnic_dask, name).__name__ == name


def test_an_unknown_name_is_an_attribute_error() -> None:
    """Lazy loading keeps Python's own message."""
    with pytest.raises(AttributeError, match="has no attribute 'Classifier'"):
        _ = lancetnic_dask.Classifier


@pytest.mark.parametrize("module", MODULES)
def test_all_lists_what_is_there(module: str) -> None:
    """`__all__` names nothing that a module lacks."""
    loaded = importlib.import_module(module)

    assert [name for name in getattr(loaded, "__all__", []) if not hasattr(loaded, name)] == []


@pytest.mark.parametrize(
    ("name", "function"), public_callables(), ids=lambda value: str(value)[:40]
)
def test_documented_defaults_are_those_of_the_signature(name: str, function: Any) -> None:
    """Each parameter is documented, and a documented ``default=`` is the real one."""
    docs = (
        FunctionDoc(function)
        if inspect.isroutine(function)
        else NumpyDocString(inspect.getdoc(function) or "")
    )
    documented = {
        each.strip(): parameter.type
        for parameter in docs["Parameters"]
        for each in parameter.name.split(",")
    }
    signature = inspect.signature(function)

    for parameter in signature.parameters.values():
        if parameter.name in ("self", "cls", "_cls"):
            continue
        if name == "Run":  # a result that users read and never make: its fields are Attributes
            continue
        assert parameter.name in documented, f"{name} doesn't document {parameter.name!r}"
        kind = documented[parameter.name]
        if "default=" in kind:
            default = ast.literal_eval(kind.split("default=")[1].split(" and ")[0])
            assert parameter.default == default, f"{name}: {parameter.name}"


@pytest.mark.parametrize(
    ("name", "function"), public_callables(), ids=lambda value: str(value)[:40]
)
def test_every_public_name_says_what_it_is(name: str, function: Any) -> None:
    """A docstring starts with one line that ends in a full stop."""
    first = (inspect.getdoc(function) or "").split("\n")[0]

    assert first.endswith("."), name


def run_python(code: str) -> str:
    """Run code in a new process; return what it prints."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_importing_the_package_loads_nothing_heavy() -> None:
    """A worker imports the package for each task; torch alone would take 1.5 s and 190 MB."""
    heavy = run_python(
        "import sys, lancetnic_dask\n"
        "print([m for m in ('torch', 'dask', 'numba', 'pandas', 'pyarrow') if m in sys.modules])"
    )

    assert heavy == "[]"


def test_what_a_worker_runs_never_loads_torch() -> None:
    """Corpus, features and cluster stay free of torch, whatever imports them."""
    code = (
        "import sys\n"
        "import lancetnic_dask.corpus.frame, lancetnic_dask.features.groups\n"
        "import lancetnic_dask.features.vocabulary, lancetnic_dask.cluster.local\n"
        "print('torch' in sys.modules)"
    )

    assert run_python(code) == "False"


def test_the_source_has_no_unstable_hash_and_no_pickle() -> None:
    """`hash()` differs between processes; a pickle can run code."""
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                assert node.func.id not in ("hash", "eval", "exec"), path
            if isinstance(node, ast.Import):
                assert all(alias.name != "pickle" for alias in node.names), path
