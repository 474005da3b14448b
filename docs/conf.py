"""Sphinx configuration."""

import importlib.metadata

project = "encodeonce"
author = "the encodeonce maintainers"
copyright = "the encodeonce maintainers"
release = importlib.metadata.version("encodeonce")
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.viewcode"]
html_theme = "furo"
html_title = "encodeonce"
exclude_patterns = ["_build"]
myst_enable_extensions = ["colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 3
autodoc_typehints = "description"
autodoc_member_order = "bysource"
nitpicky = False
