"""Sphinx: `make docs` builds the site into docs/_build, and a warning is an error."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tools" / "docs_site"))

project = "minikube_py"
author = "the minikube_py authors"
copyright = author
extensions = ["myst_nb", "source_pages"]
# myst-nb leaves executed notebooks beside the output.
exclude_patterns = ["_build", "jupyter_execute"]
source_suffix = {".md": "myst-nb", ".ipynb": "myst-nb"}
# tests/integration/test_notebook.py runs them, and compares what they print with what they show.
nb_execution_mode = "off"

myst_heading_anchors = 4
myst_enable_extensions = ["deflist"]
myst_url_schemes = {
    "http": None,
    "https": None,
    "mailto": None,
    # Made by source_pages: a page of a file of the repository, and a place in it.
    # MyST replaces names in braces, and knows no conditions: hence a scheme for each form.
    "source": {"url": "{{path}}", "classes": ["source"]},
    "definition": {"url": "{{path}}#{{fragment}}", "classes": ["source"]},
}

html_theme = "furo"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_title = "minikube_py"
html_copy_source = False
html_show_sphinx = False
html_theme_options = {"navigation_with_keys": True, "top_of_page_buttons": []}
# A fence without a language is a console or a diagram, not Python.
highlight_language = "none"
pygments_style = "default"
pygments_dark_style = "github-dark"
suppress_warnings = ["myst.header"]
