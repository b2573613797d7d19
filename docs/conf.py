"""How the documentation site is made, from Markdown pages and from the code. `make docs` builds it."""

from __future__ import annotations

from pathlib import Path

from sphinx.application import Sphinx

import rollview

project = "rollview"
author = "the authors of rollview"
version = release = rollview.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc"]
source_suffix = {".md": "markdown"}
exclude_patterns = ["_static"]

# Classes of other packages have their documentation elsewhere; `A` is any class.
nitpick_ignore_regex = [
    (
        "py:class",
        r"pyspark\..*|collections\.abc\..*|.*\.A|pyarrow\..*|pa\.Table|pathlib\.Path|DataFrame|SparkSession",
    )
]

# Links are those of the files in the repository, anchors included, so that both can be read.
myst_heading_anchors = 4
myst_links_external_new_tab = False

autodoc_member_order = "bysource"
autodoc_typehints = "description"
autodoc_typehints_description_target = "documented_params"
python_use_unqualified_type_names = True

html_theme = "furo"
html_title = f"rollview {release}"
html_static_path = ["_static"]
html_css_files = ["pictures.css"]
html_show_sourcelink = False
html_show_copyright = False
html_copy_source = False
html_permalinks_icon = "#"
# No address of ours is known, and none of others is asked when a page is read.
html_baseurl = ""
html_theme_options = {"top_of_page_buttons": []}


def _how_fast(app: Sphinx, page: str, source: list[str]) -> None:
    """The section of the README, with its links as this folder sees them."""
    if page == "how-fast":
        readme = (Path(app.srcdir).parent / "README.md").read_text(encoding="utf-8")
        section = readme.partition("## How fast\n")[2].partition("\n## ")[0]
        section = section.replace("](docs/", "](").replace("](benchmarks/", "](../benchmarks/")
        source[0] = source[0].partition("\n")[0] + "\n" + section


def setup(app: Sphinx) -> None:
    """What Sphinx calls first."""
    app.connect("source-read", _how_fast)
