"""Print what mgclust and some of its extras need: ``requirements.py service,fmri`` beside pyproject.toml.

The image installs these before mgclust's source is there, so that a change of the source does not install them again.
"""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path


def requirements(extras: str) -> list[str]:
    """Read pyproject.toml of this directory."""
    project = tomllib.loads(Path("pyproject.toml").read_text(encoding="utf-8"))["project"]
    found = list(project["dependencies"])
    for extra in filter(None, extras.split(",")):
        if extra not in project["optional-dependencies"]:
            sys.exit(f"EXTRAS={extras!r} should name some of {', '.join(project['optional-dependencies'])}.")
        found += project["optional-dependencies"][extra]
    return found


if __name__ == "__main__":
    print("\n".join(requirements(sys.argv[1])))
