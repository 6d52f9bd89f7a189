"""Print what a run of the lab did, and write it as JSON: ``table.py TARGET STEPS [FILE]``."""

from __future__ import annotations

import json
import os
import platform
import sys
import time
from pathlib import Path


def main(target: str, steps: str, file: str | None = None) -> None:
    """Read the lines of `step` in common.sh."""
    lines = [line.split("\t") for line in Path(steps).read_text(encoding="utf-8").splitlines()]
    width = max(len(what) for what, _, _ in lines)
    print(f"\n{'what':{width}}  seconds  result")
    for what, seconds, result in lines:
        print(f"{what:{width}}  {seconds:>7}  {result}")
    if file is None:
        return
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    # Runs of other targets in the same file stay.
    written = json.loads(Path(file).read_text(encoding="utf-8")) if Path(file).exists() else {}
    written[target] = {
        "command": f"deploy/lab run {target}",
        "date": time.strftime("%Y-%m-%d"),
        "hardware": f"{os.cpu_count()} cores, {memory:.0f} GiB, Linux {platform.release().partition('-')[0]}",
        "steps": [{"what": what, "seconds": int(seconds), "result": result} for what, seconds, result in lines],
    }
    Path(file).write_text(json.dumps(written, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
