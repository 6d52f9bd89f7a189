"""The documentation site: ``make -C docs html``. Nothing is fetched while it is built or read."""

import sys
from importlib import metadata
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE / "_extensions"))

project = "mgclust"
version = release = metadata.version("mgclust")
project_copyright = "the authors of mgclust"

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "numpydoc",
    "sphinx_gallery.gen_gallery",
    "cli_reference",
    "rest_reference",
]
root_doc = "index"
source_suffix = {".md": "markdown", ".rst": "restructuredtext"}
# Pages of deploy/, benchmarks/ and the top level include the files of the repository: there is one text of each.
exclude_patterns = ["_build", "_templates", "images", "gallery", "benchmarks/results/*.md"]
templates_path = ["_templates"]
default_role = "py:obj"
nitpicky = True
# Names in single backticks are links. Parameters and attributes (lower case, without a dot) and other projects have no
# page here; what else leads nowhere fails the build. What is not public is written in ``double backticks``.
nitpick_ignore_regex = [("py:obj", r"_?[a-z][a-z0-9_]*|X|(numpy|pathlib|scipy|sklearn)\..*")]

myst_enable_extensions = ["deflist", "colon_fence"]
myst_heading_anchors = 3
suppress_warnings = ["myst.header"]  # pages of deploy/ begin as GitHub shows them

autosummary_generate = True
autosummary_ignore_module_all = False
autodoc_typehints = "none"  # numpydoc's types say more
autodoc_member_order = "bysource"
numpydoc_show_class_members = False
# All parameters are described, none that is not there, in sentences; of what is public.
numpydoc_validation_checks = {"PR01", "PR02", "PR05", "PR06", "PR08", "PR09", "PR10"}
# The contracts of kernels describe once what their functions share. Checkpointer is made by the engine alone.
numpydoc_validation_exclude = {r"^mgclust\.kernels\.", r"\.comm\.Comm$", r"\.Checkpointer$"}
# Records describe their fields as attributes; others say which docstring has their parameters.
numpydoc_validation_overrides = {
    "PR01": [
        r"(?s)\A(?!.*\nParameters\n).*\nAttributes\n",
        r"[Pp]arameters (are|as) (those of|for) `",
        "[Ss]ee `",
    ]
}
numpydoc_class_members_toctree = False
add_module_names = False

html_theme = "pydata_sphinx_theme"
html_title = f"mgclust {release}"
html_static_path = []
html_show_sourcelink = False
html_copy_source = False
html_theme_options = {"navigation_depth": 2, "show_nav_level": 1, "navbar_align": "left", "show_toc_level": 2}

sphinx_gallery_conf = {
    "examples_dirs": "gallery",
    "gallery_dirs": "examples",
    "filename_pattern": r"plot_",  # the examples that are executed; EXAMPLES of the Makefile replaces it
    "download_all_examples": False,
    "remove_config_comments": True,
    "show_memory": False,
    "write_computation_times": False,  # its page loads scripts from other hosts
    "within_subsection_order": "FileNameSortKey",
    "abort_on_example_error": True,
}
