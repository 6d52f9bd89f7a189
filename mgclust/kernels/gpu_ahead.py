"""Lists of the kernels that each method asks for first, so that they are compiled side by side while its rows load.

The lists are those of a method's default path, the kernels that take longest to compile first. A kernel that is
missing is compiled when it is asked for; one too many takes a fraction of a second of an idle core. CuPy's own kernels
are in a record: `gpu_cupy_kernels`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from mgclust.kernels.affinity_propagation.gpu_listed import module_of as module_of_lists
from mgclust.kernels.fuzzy_c_means import gpu_few_centers as few_centers
from mgclust.kernels.fuzzy_c_means import gpu_products as fuzzy_products
from mgclust.kernels.fuzzy_c_means.gpu import layout_of, module_of
from mgclust.kernels.greedy_merges.gpu import module_of as module_of_merges
from mgclust.kernels.low_dimension.box_tree import MOST_FEATURES
from mgclust.kernels.pairs import gpu_products as pair_products
from mgclust.kernels.pairs.column_boxes import MOST_FEATURES as BOX_FEATURES
from mgclust.kernels.pairs.gpu_column_boxes import LEAST_PAIRS as BOX_PAIRS
from mgclust.kernels.pairs.gpu_launch import LOW_DIMENSIONS, few_features
from mgclust.kernels.pairs.gpu_nearest_rows import suit_few
from mgclust.kernels.toolkit import gpu_cupy_kernels
from mgclust.kernels.toolkit.gpu_compiler import Module, compile_ahead, compiled, compiled_for_hopper, is_hopper

__all__ = ["LISTS", "begin"]

Arguments = Mapping[str, Any]
Found = Iterator[tuple[Module, str]]
# Rows of the first sample of density peaks (`pair_quantile.FIRST_ROWS`; kernels import no method); a further one has up
# to an eighth of the rows.
SAMPLE = 2048
CHOICE_ROWS, NEIGHBORS = 16384, 16  # rows by which a fraction is chosen (`fraction_choice.MOST_ROWS`), and lists there
LISTED_ROWS = 4000  # from so many on affinity propagation has lists (`row_choice.FEW_ROWS`)
MANY_ROWS = 1 << 20  # of canopies, from which on boxes may pay
PRODUCTS = {
    "gaussian": "both_ways",
    "histogram": "classify",
    "count": "classify",
    "nearest": "nearest",
}  # their kernels


def begin(function: str, arguments: Arguments, shape: tuple[int, int], rows: int, dtype: np.dtype) -> None:
    """Start to compile; see `Kernels.compile_ahead`."""
    if function in LISTS and rows:
        gpu_cupy_kernels.begin(function, dtype.name, shape[1])
        compile_ahead(LISTS[function](arguments, shape, rows, dtype))


def _density_peaks(arguments: Arguments, shape: tuple[int, int], rows: int, dtype: np.dtype) -> Found:
    n, d = shape
    if arguments["metric"] == "precomputed":
        yield compiled("pairs/stored_values.cu", dtype.name), "value_histogram"
        return
    if d > MOST_FEATURES:
        for name in ("histogram", "gaussian", "nearest"):
            yield from _pairs(name, rows, n, d, dtype)
    for part in (SAMPLE, n // 8):
        yield from _pairs("histogram", part, part, d, dtype)
    yield from _pairs("count", SAMPLE, SAMPLE, d, dtype)
    if arguments["choice"]:
        yield from _pairs("nearest", SAMPLE, SAMPLE, d, dtype)
        yield from _nearest_rows(min(rows, CHOICE_ROWS), min(n, CHOICE_ROWS), d, dtype, NEIGHBORS)
    if arguments["density"] == "knn":
        yield from _nearest_rows(rows, n, d, dtype, NEIGHBORS)
    yield from _prepared(dtype)
    yield _any_features("add_groups", dtype)
    if d <= MOST_FEATURES:
        tree, grid = (compiled(f"low_dimension/{file}.cu", dtype.name, DIM=d) for file in ("tree", "grid"))
        yield from (
            (tree, "tree_histogram"),
            (tree, "tree_nearest"),
            (compiled("pairs/column_boxes.cu", dtype.name, DIM=d), "curve"),
            (grid, "spread"),
            (grid, "interpolate"),
        )
        yield from _pairs("gaussian", 1, n, d, dtype)
    elif d > LOW_DIMENSIONS:  # rows far from the origin beside dc
        yield compiled("pairs/many_features.cu", dtype.name), "gaussian"


def _fuzzy_c_means(arguments: Arguments, shape: tuple[int, int], rows: int, dtype: np.dtype) -> Found:
    d = shape[1]
    tiles = compiled("fuzzy_c_means/fuzzy.cu", dtype.name, POWER=int(arguments["m"] != 2))
    full = arguments["covariance_type"] == "full"
    if full:
        covariances = compiled("fuzzy_c_means/covariances.cu", dtype.name)
        yield tiles, "tile_memberships"
        yield from ((covariances, "scatter"), (covariances, "norm_distances"))
        yield compiled("fuzzy_c_means/fuzzy.cu", dtype.name, POWER=0), "add_pieces"
    for c in (1,) if full else (1, arguments["numbers"][0]):  # one: how far rows are from their mean
        layout = layout_of(d, c, dtype.itemsize)
        if few_centers.suit(dtype, d, c, int(arguments["m"] != 2)):
            yield from ((few_centers.module(d, c), "warp_sums"), (tiles, "add_pieces"))
        elif layout is None and fuzzy_products.suit(dtype, d, int(arguments["m"] != 2)):
            yield from ((fuzzy_products.module(), name) for name in ("pack", "totals", "sums", "scores"))
            yield tiles, "add_pieces"
        elif layout is None:
            yield from ((tiles, name) for name in ("tile_memberships", "tile_sums", "add_pieces"))
        else:
            fused = module_of(dtype.name, d, layout, int(arguments["m"] != 2))
            yield from ((fused, "fuzzy_sums"), (fused, "add_groups"))
    yield from _pairs("nearest", rows, 1, d, dtype)
    yield from _prepared(dtype)
    yield from _exact_sums()
    yield compiled("label_sums/label_sums.cu", dtype.name), "group_sums"
    if d > LOW_DIMENSIONS:
        yield compiled("pairs/many_features.cu", dtype.name), "distances"


def _canopy(arguments: Arguments, shape: tuple[int, int], rows: int, dtype: np.dtype) -> Found:
    d = shape[1]
    yield from _prepared(dtype)
    for name in ("border", "count", "nearest"):
        yield from _pairs(name, rows, 1, d, dtype)
    canopy = compiled("canopy/canopy.cu", dtype.name)
    yield from ((canopy, "conflicts"), (canopy, "pick"))
    if d <= BOX_FEATURES and rows >= MANY_ROWS:
        boxes = compiled("pairs/column_boxes.cu", dtype.name, DIM=d)
        yield from ((boxes, name) for name in ("box_count", "box_mark", "box_nearest", "box_write", "curve"))
    if d <= LOW_DIMENSIONS:
        yield compiled("canopy/canopy.cu", dtype.name, DIM=d), "write_within"
    else:
        yield canopy, "write_below"
        yield compiled("pairs/many_features.cu", dtype.name), "distances"


def _silhouette(arguments: Arguments, shape: tuple[int, int], rows: int, dtype: np.dtype) -> Found:
    d = shape[1]
    if pair_products.suit(dtype, d):
        sums = pair_products.program("label_sums/centred_sums.cu", pair_products.chunks_of(d))
        yield from ((sums, "centred_sums"), (sums, "pack_about"))
    if d <= LOW_DIMENSIONS:
        yield few_features(rows, d, dtype, "l2")[0], "cluster_sums"
    else:
        yield compiled("pairs/many_features.cu", dtype.name), "distances"
        yield compiled("label_sums/label_sums.cu", dtype.name), "add_by_label"
    yield compiled("label_sums/label_sums.cu", dtype.name), "group_sums"
    yield from _prepared(dtype)


def _nearest_neighbors(arguments: Arguments, shape: tuple[int, int], rows: int, dtype: np.dtype) -> Found:
    n, d = shape
    yield from _nearest_rows(rows, n, d, dtype, arguments["n_neighbors"])
    yield from _prepared(dtype)


def _nearest_rows(rows: int, n: int, d: int, dtype: np.dtype, count: int) -> Found:
    if pair_products.pay(dtype, rows, n, d):
        products = pair_products.program("pairs/split_products.cu", pair_products.chunks_of(d))
        listed = compiled("pairs/listed_pairs.cu", "float32")
        for name in ("minima", "collect", "pack", "largest_sizes"):
            yield products, name
        yield from ((listed, "kth_smallest"), (listed, "select_nearest"))
    elif suit_few(dtype, d, n, count):
        module, listed = few_features(rows, d, dtype, "l2")[0], compiled("pairs/listed_pairs.cu", "float32")
        yield from ((module, "minima"), (module, "collect"), (listed, "select_nearest"), (listed, "kth_smallest"))
        if d <= BOX_FEATURES and rows * n >= BOX_PAIRS:
            boxes = compiled("pairs/column_boxes.cu", dtype.name, DIM=d)
            yield from ((boxes, "box_neighbors"), (boxes, "curve"))
    elif d > LOW_DIMENSIONS:
        yield compiled("pairs/many_features.cu", dtype.name), "distances"


def _adaptive_affinity_propagation(arguments: Arguments, shape: tuple[int, int], rows: int, dtype: np.dtype) -> Found:
    yield from _affinity_propagation(arguments, shape, rows, dtype)
    if shape[1] > LOW_DIMENSIONS:  # of silhouettes
        yield compiled("pairs/many_features.cu", dtype.name), "distances"
        yield compiled("label_sums/label_sums.cu", dtype.name), "add_by_label"
    yield compiled("affinity_propagation/few_features.cu", dtype.name), "jitter"


def _affinity_propagation(arguments: Arguments, shape: tuple[int, int], rows: int, dtype: np.dtype) -> Found:
    d = shape[1]
    if d <= LOW_DIMENSIONS:
        yield compiled("affinity_propagation/few_features.cu", dtype.name, DIM=d), "similarities_low"
    elif dtype == np.float32:
        split = compiled("affinity_propagation/similarity.cu", "float32")
        if is_hopper():
            packed = compiled_for_hopper("affinity_propagation/similarity_hopper.cu")
            yield from ((packed, "similarities_packed"), (packed, "pack_rows"))
        else:
            yield from ((split, "similarities_split"), (split, "split_rows"))
    else:
        yield compiled("pairs/many_features.cu", dtype.name), "similarities"
    yield from _prepared(dtype)
    messages = compiled("affinity_propagation/messages.cu", dtype.name)
    yield from ((messages, "pass_rows"), (messages, "pass_columns"))
    yield compiled("pairs/stored_values.cu", dtype.name), "value_histogram"
    sums = compiled("label_sums/label_sums.cu", dtype.name)
    yield from ((sums, "best_columns"), (sums, "same_label_sums"))
    if arguments.get("algorithm") != "dense" and shape[0] >= LISTED_ROWS:
        listed = module_of_lists(dtype.name, active=False)
        yield from ((listed, name) for name in ("begin_listed", "pass_listed_rows", "pass_listed_columns"))
        lists = compiled("affinity_propagation/lists.cu", dtype.name)
        yield from ((lists, name) for name in ("count_similar", "list_similar", "move_own", "nearest_flagged"))
        if d > LOW_DIMENSIONS:  # of the rows from which typical similarities follow
            yield compiled("pairs/many_features.cu", dtype.name), "distances"
        if d > LOW_DIMENSIONS and dtype == np.float32:
            yield from ((split, "split_rows"), (split, "similarities_chosen"))
        yield from ((lists, name) for name in ("move_columns", "move_lists", "gather_own"))
        listed = module_of_lists(dtype.name, active=True)  # once few clusters are left
        yield from ((listed, name) for name in ("pass_listed_rows", "begin_listed", "pass_listed_columns"))


def _fast_newman(arguments: Arguments, shape: tuple[int, int], rows: int, dtype: np.dtype) -> Found:
    # Weights of an unweighted graph's first level are none, of those above int32.
    flat, summed = (compiled("graph/communities.cu", "float64", WEIGHT=width, EXACT=1) for width in (0, 32))
    for name in ("keys_of_pairs", "pair_heads", "pair_sums", "row_starts", "apply_moves", "sum_by_id"):
        yield flat, name
    for name in ("find_heads", "number_groups", "count_pairs", "match_mutual"):
        yield flat, name
    for graph in (flat, summed):
        for name in ("propose_short", "propose_medium", "propose_long", "partners_short", "partners_long"):
            yield graph, name
        for name in ("activate_neighbors", "cross", "keys"):
            yield from ((graph, f"{name}_short"), (graph, f"{name}_long"))
        yield graph, "bin_rows"
    yield summed, "pair_sums"
    yield flat, "spread_short"  # of connected parts
    if arguments["strategy"] == "greedy":
        merges = module_of_merges(integer=True)
        yield from ((merges, name) for name in ("prepare", "best_of_children", "merge"))


LISTS: dict[str, Callable[[Arguments, tuple[int, int], int, np.dtype], Found]] = {
    "density_peaks": _density_peaks,
    "fuzzy_c_means": _fuzzy_c_means,
    "canopy": _canopy,
    "silhouette": _silhouette,
    "search_neighbors": _nearest_neighbors,
    "affinity_propagation": _affinity_propagation,
    "adaptive_affinity_propagation": _adaptive_affinity_propagation,
    "detect_communities": _fast_newman,
}


def _prepared(dtype: np.dtype) -> Found:
    """The mean and the spread of the rows; distances of all from one."""
    for name in {dtype.name, "float64"}:
        yield compiled("exact_sums/sums.cu", name), "column_sums"
    yield _any_features("distances", dtype)


def _pairs(name: str, m: int, k: int, d: int, dtype: np.dtype) -> Found:
    """An all-pairs kernel for m rows and k columns, with what goes with it."""
    by_products = pair_products.suit(dtype, d) if name == "gaussian" else pair_products.pay(dtype, m, k, d)
    if d <= LOW_DIMENSIONS:
        yield few_features(m, d, dtype, "l2")[0], name
    elif name in PRODUCTS and by_products:
        products = pair_products.program("pairs/split_products.cu", pair_products.chunks_of(d))
        listed = compiled("pairs/listed_pairs.cu", "float32")
        yield from ((products, PRODUCTS[name]), (products, "pack"), (products, "largest_sizes"))
        if name != "gaussian":
            yield listed, name
        if name == "nearest":
            yield listed, "take_nearest"
    elif name == "gaussian":
        module = compiled("pairs/many_features.cu", dtype.name, "l2-dot")
        yield from ((module, name), (module, "squared_norms"))
    else:
        yield compiled("pairs/many_features.cu", dtype.name), name
    if name == "nearest":
        yield _any_features("merge_nearest", dtype)


def _any_features(name: str, dtype: np.dtype) -> tuple[Module, str]:
    return compiled("pairs/any_features.cu", dtype.name), name


def _exact_sums() -> Found:
    sums = compiled("exact_sums/sums.cu", "float64")
    yield from ((sums, "largest_exponents"), (sums, "integer_sums"), (sums, "from_integers"))
