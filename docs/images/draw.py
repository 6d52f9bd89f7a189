"""Draw the pictures of the README and of pages of methods: ``python docs/images/draw.py`` writes them to its folder."""

from io import BytesIO
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from PIL import Image
from sklearn.datasets import make_moons

from mgclust import (
    AdaptiveAffinityPropagation,
    AffinityPropagation,
    Canopy,
    DensityPeaks,
    FastNewman,
    FuzzyCMeans,
    plots,
    silhouette_samples,
)
from mgclust.data import samples
from mgclust.datasets import make_gaussian_clusters, make_gaussian_rings


def draw_demo(path: Path) -> DensityPeaks:
    """Cluster 31 Gaussian clusters, whose number is not given, and write the picture; return the fitted model."""
    X = make_gaussian_clusters().X
    model = DensityPeaks(client=None, device="cpu").fit(X)
    figure = Figure(figsize=(11.4, 4.9), layout="constrained", facecolor="white")
    left, right = figure.subplots(1, 2)
    plots.scatter(X, model.labels_, centers=X[model.cluster_centers_indices_], ax=left)
    plots.decision_graph(model.result_, ax=right)
    write(figure, path)
    return model


def draw_communities(path: Path) -> FastNewman:
    """Find the communities of Les Misérables and write the picture; return the fitted model."""
    graph = samples.load("lesmis")
    model = FastNewman(client=None, device="cpu").fit(graph)
    figure = Figure(figsize=(11.4, 9.6), layout="constrained", facecolor="white")
    top, bottom = figure.subfigures(2, 1, height_ratios=(4.6, 5.0))
    plots.dendrogram(model.result_, ax=top.subplots())
    left, right = bottom.subplots(1, 2)
    plots.adjacency(graph, model.labels_, names=model.node_names_, ax=left)
    plots.modularity(model.result_, ax=right)
    write(figure, path)
    return model


def draw_memberships(path: Path) -> FuzzyCMeans:
    """Choose the number of fuzzy clusters and write the picture; return the fitted model."""
    X = make_gaussian_rings().X
    model = FuzzyCMeans(
        n_clusters_range=(2, 20), criterion="fuzzy_silhouette", n_init=3, random_state=0, client=None, device="cpu"
    ).fit(X)
    second, first = np.partition(model.memberships_, -2, axis=1)[:, -2:].T
    figure = Figure(figsize=(11.4, 4.9), layout="constrained", facecolor="white")
    left, right = figure.subplots(1, 2)
    plots.scatter(X, model.labels_, centers=model.cluster_centers_, halo=second > first / 2, ax=left)
    plots.validity(model.result_, ax=right)
    write(figure, path)
    return model


def draw_exemplars(path: Path) -> AffinityPropagation:
    """Find exemplars at two preferences and write the picture; return the model with fewer exemplars."""
    X = make_gaussian_rings().X
    figure = Figure(figsize=(11.4, 4.9), layout="constrained", facecolor="white")
    for preference, ax in zip((None, -1000.0), figure.subplots(1, 2), strict=True):
        model = AffinityPropagation(damping=0.8, preference=preference, client=None, device="cpu").fit(X)
        for row, exemplar in zip(X, X[model.cluster_centers_indices_][model.labels_], strict=True):
            ax.plot(*zip(row, exemplar, strict=True), color="0.8", linewidth=0.5, zorder=0)
        plots.scatter(X, model, ax=ax)
        ax.set_title(f"preference {float(np.median(model.preference_)):.4g}: {model.n_clusters_} exemplars")
    write(figure, path)
    return model


def draw_plots(path: Path) -> None:
    """Draw six pictures that say how good clusters are, and write them as one: 15 clusters, and two moons."""
    X = make_gaussian_rings().X
    moons, _ = make_moons(600, noise=0.06, random_state=0)
    place = {"client": None, "device": "cpu"}
    labels = DensityPeaks(**place).fit(X).labels_
    several = {"n_clusters_range": (2, 20), "criterion": "fuzzy_silhouette", "n_init": 3, "max_iter": 1000}
    fuzzy = FuzzyCMeans(**several, random_state=0, **place).fit(X)
    figure = Figure(figsize=(11.4, 13.8), layout="constrained", facecolor="white")
    (silhouettes, canopies), (scan, validity), (objective, prominence) = figure.subplots(3, 2)
    plots.silhouettes(silhouette_samples(X, labels), labels, ax=silhouettes)
    plots.canopies(X, Canopy(6.0, 4.5, order="random", random_state=0, **place).fit(X), ax=canopies)
    plots.scan(AdaptiveAffinityPropagation(**place).fit(X), ax=scan)
    plots.validity(fuzzy, ax=validity)
    plots.objective(fuzzy, ax=objective)
    plots.prominence(DensityPeaks(**place).fit(moons), ax=prominence)
    write(figure, path)


def write(figure: Figure, path: Path) -> None:
    """Write a PNG file; 256 colours are enough for it, and a third of the bytes."""
    buffer = BytesIO()
    figure.savefig(buffer, format="png", dpi=150)
    Image.open(buffer).convert("RGB").quantize(256, dither=Image.Dither.NONE).save(path, optimize=True)


if __name__ == "__main__":
    draw_demo(Path(__file__).with_name("demo.png"))
    draw_communities(Path(__file__).with_name("communities.png"))
    draw_memberships(Path(__file__).with_name("memberships.png"))
    draw_exemplars(Path(__file__).with_name("exemplars.png"))
    draw_plots(Path(__file__).with_name("plots.png"))
