"""Links in the docs lead somewhere: to a file of the repository, and to a heading that is there."""

from __future__ import annotations

import re
import subprocess
from collections import Counter
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LISTED = subprocess.run(
    ["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.md"],
    cwd=ROOT,
    capture_output=True,
    text=True,
    check=True,
).stdout
PAGES = [ROOT / name for name in LISTED.splitlines() if (ROOT / name).is_file()]
LINK = re.compile(r"\]\(([^)\s]+)\)")
FENCE = re.compile(r"^```.*?^```", re.DOTALL | re.MULTILINE)
CITED = {"docs/comparison.md"}
"""The only pages that name addresses of others: each is a claim with its source."""


def _prose(page: Path) -> str:
    return FENCE.sub("", page.read_text(encoding="utf-8"))


@cache
def _anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as repositories and the site make them."""
    seen: Counter[str] = Counter()
    found = set()
    for title in re.findall(r"^#{1,6} (.*)$", _prose(page), re.MULTILINE):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", title).replace("`", "").strip().lower()
        slug = re.sub(r"[^\w\- ]", "", plain).replace(" ", "-")
        found.add(f"{slug}-{seen[slug]}" if seen[slug] else slug)
        seen[slug] += 1
    return found


def broken_links(page: Path) -> list[str]:
    """The links of a page that lead nowhere."""
    broken = []
    for target in LINK.findall(_prose(page)):
        if target.startswith("https://"):
            if str(page.relative_to(ROOT)) not in CITED:
                broken.append(f"{target}: an address of somebody else")
            continue
        name, _, anchor = target.partition("#")
        file = (page.parent / name).resolve() if name else page
        if "://" in target or not file.is_relative_to(ROOT) or not file.exists():
            broken.append(target)
        elif anchor and (file.suffix != ".md" or anchor not in _anchors(file)):
            broken.append(f"{target}: no such heading")
    return broken


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    assert broken_links(page) == []


def test_a_broken_link_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = tmp_path / "page.md"
    page.write_text("# A title\n\n[1](#a-title) [2](#b) [3](gone.md) [4](http://x.y) [5](page.md#a-title)\n")
    monkeypatch.setitem(globals(), "ROOT", tmp_path)
    assert broken_links(page) == ["#b: no such heading", "gone.md", "http://x.y"]


def test_every_source_of_the_comparison_is_used_and_every_number_has_one() -> None:
    text = (ROOT / "docs" / "comparison.md").read_text(encoding="utf-8")
    claims, _, listed = text.partition("## What was read")
    numbered = [int(number) for number in re.findall(r"^(\d+)\. ", listed, re.MULTILINE)]
    assert numbered == list(range(1, len(numbered) + 1))
    groups = re.findall(r"\[(\d+(?:, \d+)*)\](?!\()", claims)
    assert {int(each) for group in groups for each in group.split(", ")} == set(numbered)
    assert all("https://" in line for line in listed.splitlines() if re.match(r"\d+\. ", line))
