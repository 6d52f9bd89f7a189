"""Pictures from fitted estimators as from results and arrays; a notebook shows them."""

import numpy as np
import pytest
from matplotlib.figure import Figure
from scipy.sparse import csr_array
from sklearn.cluster import KMeans

from mgclust import Canopy, Communities, DensityPeaks, FastNewman, FuzzyCMeans, open_dataset, plots
from mgclust.algorithms import AdaptiveAffinityPropagation, Silhouette, presentation_of
from mgclust.base.errors import InputError

LABELS = np.repeat([0, 1, 2], 20)
X = np.random.default_rng(0).normal(size=(60, 2)) + 9 * np.eye(3)[LABELS][:, :2]
GRAPH = np.array([[0, 1], [1, 2], [0, 2], [3, 4], [4, 5], [3, 5], [2, 3]])
PEAKS = DensityPeaks(3, client=None).fit(X)
APART = DensityPeaks(3, client=None, assignment="separated").fit(X)
FUZZY = FuzzyCMeans(n_clusters_range=(2, 4), client=None, random_state=0).fit(X)
CANOPIES = Canopy(6.0, 3.0, client=None).fit(X)
SCANNED = AdaptiveAffinityPropagation(client=None).fit(X)
TREE = FastNewman(client=None).fit(GRAPH)
MOVED = Communities(strategy="parallel", client=None).fit(GRAPH)
WIDTHS = Silhouette(LABELS, client=None)
WIDTHS.fit_dataset(open_dataset(X))
PAIRS = {
    "decision graph": (plots.decision_graph, (PEAKS,), (PEAKS.result_,)),
    "centres and halo": (
        plots.scatter,
        (X, PEAKS),
        (X, PEAKS.labels_, X[PEAKS.cluster_centers_indices_], PEAKS.halo_),
    ),
    "centres between rows": (plots.scatter, (X, FUZZY), (X, FUZZY.labels_, FUZZY.cluster_centers_)),
    "labels of others": (plots.scatter, (X, KMeans(3, random_state=0).fit(X)), None),
    "sparse rows": (plots.scatter, (csr_array(X), LABELS), (X, LABELS)),
    "objective": (plots.objective, (FUZZY,), (FUZZY.result_,)),
    "validity": (plots.validity, (FUZZY,), (FUZZY.result_,)),
    "prominence": (plots.prominence, (APART,), (APART.result_,)),
    "scan": (plots.scan, (SCANNED,), (SCANNED.result_,)),
    "canopies": (plots.canopies, (X, CANOPIES), (X, CANOPIES.labels_, CANOPIES.cluster_centers_, 6.0, 3.0)),
    "tree": (plots.dendrogram, (TREE,), (TREE.result_,)),
    "tree of moves": (plots.dendrogram, (MOVED,), (MOVED.merges_,)),
    "modularity": (plots.modularity, (TREE,), (TREE.result_,)),
    "adjacency": (plots.adjacency, (GRAPH, MOVED), (GRAPH, MOVED.labels_)),
    "silhouettes": (plots.silhouettes, (WIDTHS,), (WIDTHS.samples_, LABELS)),
    "silhouettes of a model": (plots.silhouettes, (WIDTHS.samples_, PEAKS), (WIDTHS.samples_, PEAKS.labels_)),
}


@pytest.mark.parametrize("draw, given, arrays", PAIRS.values(), ids=PAIRS)
def test_a_fitted_estimator_is_drawn_as_its_arrays(draw, given, arrays):
    ax = draw(*given)
    assert arrays is None or plots.png(ax, dpi=40) == plots.png(draw(*arrays), dpi=40)
    mine = Figure().subplots()
    assert draw(*given, ax=mine) is mine


def test_prominence_says_what_it_needs():
    with pytest.raises(
        InputError, match="has no significance; give a result of 'density-peaks' with separated clusters"
    ):
        plots.prominence(PEAKS)


def test_a_notebook_shows_the_picture():
    from IPython.core.formatters import DisplayFormatter

    shown, _ = DisplayFormatter().format(plots.decision_graph(PEAKS))
    assert shown["image/png"][:4] == b"\x89PNG"


WRONG = {
    "short labels": (plots.scatter, (X, LABELS[:-1]), r"labels has shape \(59,\), it should be \(60,\): one entry per"),
    "labels of other rows": (plots.scatter, (X[:9], PEAKS), r"labels has shape \(60,\), it should be \(9,\)"),
    "labels in a column": (plots.scatter, (X, LABELS[:, None]), r"labels has shape \(60, 1\)"),
    "names for labels": (
        plots.scatter,
        (X, np.array(list("ab"))[LABELS % 2]),
        "labels has dtype <U1",
    ),
    "one row": (plots.scatter, (X[0], LABELS[:1]), r"X has shape \(2,\)"),
    "short halo": (plots.scatter, (X, LABELS, None, np.ones(3, bool)), r"halo has shape \(3,\)"),
    "other centres": (plots.scatter, (X, LABELS, np.ones((3, 5))), r"centers has shape \(3, 5\), it should be .*, 2\)"),
    "not fitted": (plots.decision_graph, (DensityPeaks(3),), "DensityPeaks is not fitted; call fit first"),
    "labels not fitted": (plots.scatter, (X, DensityPeaks(3)), "DensityPeaks is not fitted"),
    "another method": (
        plots.decision_graph,
        (FUZZY,),
        "'fuzzy-c-means' has no delta; give a result of 'density-peaks'",
    ),
    "others' estimator": (
        plots.decision_graph,
        (KMeans().fit(X),),
        "is neither a result nor",
    ),
    "array": (plots.decision_graph, (LABELS,), "is neither a result nor a fitted estimator; give a result of 'density"),
    "no scan": (plots.scan, (PEAKS,), "give a result of 'adaptive-affinity-propagation'"),
    "no mapping": (plots.scan, (LABELS,), "give a result of 'adaptive-affinity-propagation'"),
    "no range": (plots.validity, (PEAKS,), "give a result of 'fuzzy-c-means' with n_clusters_range"),
    "no objective": (plots.objective, (PEAKS,), "give a result of 'fuzzy-c-means'"),
    "no centres": (plots.canopies, (X, LABELS), "centers, t1 or t2 is missing"),
    "no canopies": (plots.canopies, (X, PEAKS), "give a result of 'canopy'"),
    "no merges": (plots.dendrogram, (PEAKS,), "holds no merges"),
    "no history": (plots.modularity, (PEAKS,), "should be|give a result of|holds no"),
    "no silhouettes": (plots.silhouettes, (PEAKS,), "give a result of 'silhouette'"),
    "no labels": (plots.silhouettes, (WIDTHS.samples_,), "labels=None"),
    "few silhouettes": (plots.silhouettes, (WIDTHS.samples_[:5], LABELS), r"it should be \(5,\)"),
    "model as volume": (plots.label_slices, (PEAKS,), r"volume has shape \(\), it should be \(x, y, z\)"),
    "few labels of nodes": (plots.adjacency, (GRAPH, LABELS[:3]), "edges join nodes 0 to 5, but labels has 3 nodes"),
}


@pytest.mark.parametrize("draw, given, words", WRONG.values(), ids=WRONG)
def test_a_message_says_what_to_give(draw, given, words):
    with pytest.raises(InputError, match=words):
        draw(*given)


def test_axes_have_the_names_of_columns(tmp_path):
    import pandas as pd

    from mgclust import DensityPeaks, load_result

    X = np.random.default_rng(0).normal(size=(60, 2))
    frame = pd.DataFrame(X, columns=["price in $", "length"])
    model = DensityPeaks(2, device="cpu", client=None).fit(frame)
    model.result_.save(tmp_path / "result")
    for table, labels in (
        (frame, model.labels_),
        (X, model),
        (X, model.result_),
        (X, load_result(tmp_path / "result")),
        (X, KMeans(2).fit(frame)),
    ):
        ax = plots.scatter(table, labels)
        assert (ax.get_xlabel(), ax.get_ylabel()) == (r"price in \$", "length")
    assert plots.scatter(X, model.labels_).get_xlabel() == "feature 0"
    drawn = presentation_of("density-peaks").draw(
        model.result_, presentation_of("density-peaks").sample(open_dataset(frame), model.result_, 50)
    )
    assert drawn["scatter"].get_ylabel() == "length"
