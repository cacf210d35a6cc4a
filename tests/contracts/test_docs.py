"""README and docs: nothing is left to be filled in, and what they point to is there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
# [text](target) and ![text](target "title"); the text may hold an image of its own.
LINK = re.compile(r"\]\(\s*<?([^)\s>]+)")
BLOCK, CODE = re.compile(r"```.*?```", re.DOTALL), re.compile(r"`[^`\n]*`")
URL = re.compile(r"[a-z][a-z0-9+.-]*:", re.IGNORECASE)


def targets(page: Path) -> list[str]:
    """Return where the links and images of a page point, without those in code."""
    return LINK.findall(CODE.sub("", BLOCK.sub("", page.read_text(encoding="utf-8"))))


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as GitHub makes them."""
    text = BLOCK.sub("", page.read_text(encoding="utf-8"))
    headings = re.findall(r"^#+ +(.+?) *$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", one.lower()).replace(" ", "-") for one in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_nothing_is_left_to_do(page: Path) -> None:
    """A figure that is not measured yet must not be published."""
    lines = page.read_text(encoding="utf-8").splitlines()

    left = [f"{number}: {line}" for number, line in enumerate(lines, 1) if "TODO" in line]

    assert left == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_relative_link_leads_somewhere(page: Path) -> None:
    """To a file or a picture of the repository, and to a heading in it if one is named."""
    dead = []
    for target in (one for one in targets(page) if not URL.match(one)):
        path, _, anchor = target.partition("#")
        file = (page.parent / path).resolve() if path else page
        if not file.exists() or (anchor and anchor not in anchors(file)):
            dead.append(target)

    assert dead == []


def test_links_are_found(tmp_path: Path) -> None:
    """Those in code are none; a heading is found by its anchor."""
    page = tmp_path / "page.md"
    page.write_text(
        '# What `it` is, and isn\'t\n[a](b.md#c) ![d](e.svg "f") `[g](h)`\n'
        "```python\nlist[i](j)\n# no heading\n```\n[k](https://l.example)\n",
        encoding="utf-8",
    )

    assert targets(page) == ["b.md#c", "e.svg", "https://l.example"]
    assert anchors(page) == {"what-it-is-and-isnt"}
