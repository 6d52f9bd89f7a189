"""Markdown tables for README.md from the results of the benchmarks of affinity propagation, silhouettes, fuzzy c-means.

python -m benchmarks.support.tables benchmarks/results/affinity_propagation/gpu.json [OTHER.json ...]
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

# Beginning of an item's name: its columns, in this order; a dot goes into a dictionary.
COLUMNS = {
    "iteration n=": "ms_first ms_settled limit_ms share_of_limit_first share_of_limit_settled target_ms met",
    "matrices n=": ("norm similarities_ms fill_ms similarities_over_fill order_statistic_ms order_statistic_limit_ms"),
    "scikit-learn n=": "iteration_ms ours_ms ratio target_ratio",
    "n=": ("ms_iteration limit_ms share_of_limit efficiency all_reduce_ms similarities_seconds same_bits sentence"),
    "euclidean n=": "seconds limit_seconds share_of_limit efficiency first_use_seconds same_bits",
    "correlation n=": "seconds limit_seconds efficiency first_use_seconds same_bits",
    "scikit-learn euclidean": "sklearn_seconds our_seconds_whole_call ratio largest_difference",
    "scikit-learn correlation": "sklearn_seconds our_seconds_whole_call ratio largest_difference",
    "adaptive scan": (
        "iterations ended_by_itself candidates best_k silhouette timings.similarities timings.scan timings.silhouette "
        "iterations_per_second ms_iteration limit_ms share_of_limit peak_device_gib efficiency same_bits"
    ),
    "S n=": "ms kernel_ms paper_gpu_cpu_ms",
    "silhouette n=": "candidates seconds_closed_form seconds_all_pairs paper_gpu_cpu_seconds",
    "FCM iteration n=": "ms kernel_ms sum_parts_ms rest_ms bytes_ms flops_ms share_of_limit target_ms met",
    "FCM sample n=": "ms_iterations iterations ms_whole_fit target_ms met",
    "FCM sample in": "ms_iterations ratio target_ratio met largest_difference_of_objective",
    "FCM n=": "ms ms_iterations bytes_ms flops_ms share_of_limit bits",
    "FCM efficiency": "weak strong target met same_bits",
    "FCM streamed": "ms bytes_per_second share_of_link target_share met memory_limit chunks",
    "FCM resident": "ms bytes_per_second",
    "FCM m=": "right ari iterations stop_reason objective partition_coefficient equal_in_float32_after",
    "adAP n=": "seconds runs iterations candidates best_k stages.similarities stages.scan stages.silhouette",
}


def value(item: dict[str, Any], name: str) -> str:
    found: Any = item
    for part in name.split("."):
        found = found.get(part) if isinstance(found, dict) else None
    if isinstance(found, float):
        return f"{found:.3g}" if abs(found) < 1000 else f"{found:.0f}"
    if isinstance(found, list):
        return " / ".join(map(str, found))
    return "" if found is None else str(found)


def tables(document: dict[str, Any]) -> None:
    """One table for items of each kind."""
    kinds: dict[str, list[dict[str, Any]]] = {}
    for item in document["items"]:
        if "failed" in item:
            print(f"FAILED {item['item']}: {item['failed']}")
            continue
        kind = max((k for k in COLUMNS if item["item"].startswith(k)), key=len, default=None)
        if kind:
            kinds.setdefault(kind, []).append(item)
    for kind, items in kinds.items():
        columns = [name for name in COLUMNS[kind].split() if any(value(item, name) for item in items)]
        print(f"\n| | {' | '.join(name.split('.')[-1] for name in columns)} |\n|{'---|' * (1 + len(columns))}")
        for item in items:
            print(f"| {item['item']} | {' | '.join(value(item, name) for name in columns)} |")


if __name__ == "__main__":
    for path in map(Path, sys.argv[1:]):
        read = json.loads(path.read_text())
        print(f"\n{path.name}: {read['hardware'].get('gpus') or read['hardware']['cpu']}, {read['date']}")
        tables(read)
