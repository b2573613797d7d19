"""The search for dead names finds what is dead, also two that only use each other, and nothing else."""

from __future__ import annotations

from pathlib import Path

from live_names import unused_names

FILES = {
    "__init__.py": "from shop.sales import sell, refund\n",
    "sales.py": (
        "PRICE = 3\n"
        "def sell(): return PRICE\n"
        "def refund(): return exchange()\n"
        "def exchange(): return refund()\n"
        "def _hidden(): return 0\n"
    ),
    "names.py": "def called_by_text(): return 1\ndef attribute(): return 2\ndef dead(): return 3\n",
    "main.py": (
        "from shop import names, sell\n"
        "COMMANDS = {'x': 'shop.names:called_by_text'}\n"
        "def main(): return sell(), names.attribute(), COMMANDS\n"
    ),
}


def test_dead_names_are_found(tmp_path: Path) -> None:
    (tmp_path / "shop").mkdir()
    for name, text in FILES.items():
        (tmp_path / "shop" / name).write_text(text)
    unused = unused_names(tmp_path, {("shop.main", "main")})
    assert {name for _, name in unused} == {"refund", "exchange", "dead"}
