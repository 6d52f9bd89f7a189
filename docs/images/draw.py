"""Draw the README's pictures: ``python docs/images/draw.py`` writes demo.png and communities.png beside this file."""

from io import BytesIO
from pathlib import Path

from matplotlib.figure import Figure
from PIL import Image

from mgclust import DensityPeaks, FastNewman, plots
from mgclust.data import samples
from mgclust.datasets import make_gaussian_clusters


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


def write(figure: Figure, path: Path) -> None:
    """Write a PNG file; 256 colours are enough for it, and a third of the bytes."""
    buffer = BytesIO()
    figure.savefig(buffer, format="png", dpi=150)
    Image.open(buffer).convert("RGB").quantize(256, dither=Image.Dither.NONE).save(path, optimize=True)


if __name__ == "__main__":
    draw_demo(Path(__file__).with_name("demo.png"))
    draw_communities(Path(__file__).with_name("communities.png"))
