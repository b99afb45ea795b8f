"""Settings of Sphinx for the site; `build_site.py` runs it on the staged pages.

Rules: no asset comes from the network, and each warning of a build is an error (`build_site.py`).
"""

from __future__ import annotations

import inspect
import sys
from pathlib import Path
from typing import Any, List, Optional, Tuple

sys.path.insert(0, str(Path(__file__).parent))

from scaler import __version__

project = "Scaler"
author = "the authors of Scaler"
version = release = __version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx_copybutton"]
root_doc = "index"
exclude_patterns = ["**/.*"]

myst_heading_anchors = 6
myst_enable_extensions = ["attrs_inline"]

# Docstrings: sections as Google's, names of code in single backticks.
default_role = "code"
napoleon_google_docstring = True
napoleon_numpy_docstring = False
napoleon_use_rtype = False
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
autodoc_member_order = "bysource"
autodoc_class_signature = "mixed"
python_use_unqualified_type_names = True
maximum_signature_line_length = 88

# Addresses of examples. GitHub answers 429 to who asks much, and shows lines of a file by a script.
linkcheck_ignore = [
    r"https?://(127\.0\.0\.1|localhost|\[::1\]|[\w.-]*example\.(com|org|net)|[\w.-]*\.local)(:\d+)?(/.*)?$"
]
linkcheck_anchors = False
linkcheck_timeout = 30
linkcheck_retries = 3

smartquotes = False  # options begin with two dashes

html_theme = "furo"
html_title = f"Scaler {version}"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_js_files = ["versions.js"]
html_favicon = str(Path(__file__).parent / "static/favicon.svg")
html_search_scorer = str(Path(__file__).parent / "static/search_scorer.js")
html_copy_source = False
html_show_sphinx = False
html_show_copyright = False
html_last_updated_fmt = None
html_permalinks_icon = "#"
html_theme_options = {
    "navigation_with_keys": True,
    "light_css_variables": {"color-brand-primary": "#1a5fb4", "color-brand-content": "#1a5fb4"},
    "dark_css_variables": {"color-brand-primary": "#78aeed", "color-brand-content": "#78aeed"},
}
pygments_style = "friendly"
pygments_dark_style = "monokai"

copybutton_prompt_text = "$ "
copybutton_exclude = ".linenos, .gp, .go"


def without_rules(app: object, what: str, name: str, obj: object, options: object, lines: List[str]) -> None:
    """Leave out the docstrings of modules: their rules are for those who change them."""
    if what == "module":
        lines.clear()


def without_earlier_arguments(
    app: Any, what: str, name: str, obj: Any, options: object, signature: Optional[str], returned: Optional[str]
) -> Optional[Tuple[str, Optional[str]]]:
    """Show today's arguments alone: `inspect.signature` of some functions has those of earlier generations as well."""
    function = obj.__init__ if inspect.isclass(obj) else obj
    wrapped = getattr(function, "__wrapped__", None)
    if wrapped is None or not hasattr(function, "__signature__"):
        return None
    from sphinx.util.inspect import signature as signature_of
    from sphinx.util.inspect import stringify_signature

    today = signature_of(wrapped, bound_method=True, type_aliases=app.config.autodoc_type_aliases)
    return stringify_signature(today, unqualified_typehints=True, show_return_annotation=not inspect.isclass(obj)), None


def setup(app: Any) -> None:
    """Called by Sphinx."""
    app.connect("autodoc-process-docstring", without_rules)
    app.connect("autodoc-process-signature", without_earlier_arguments)
