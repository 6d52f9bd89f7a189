"""Fits in the background: several at a time, errors, cancellation that stops ranks, coroutines."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import CancelledError, as_completed, wait

import dask.array as da
import distributed
import numpy as np
import pytest

from mgclust import AffinityPropagation, DensityPeaks, FuzzyCMeans, compare_labels, silhouette_samples, submit
from mgclust.base.errors import InputError
from support.waiting import wait_for

pytestmark = pytest.mark.xdist_group("workers")

WAIT_LIMIT = 100  # seconds


def points(n: int = 3000) -> np.ndarray:
    return np.random.default_rng(3).normal(size=(n, 2))


def endless(client) -> FuzzyCMeans:
    """A fit of hours."""
    where = {"client": client, "device": "cpu", "n_workers": client and 4}
    return FuzzyCMeans(40, m=2.0, tol=1e-300, max_iter=10_000_000, random_state=0, **where)


def fits() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name == "mgclust-fit"]


@pytest.mark.parametrize("several", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["here", "on ranks"])
def test_fits_end_side_by_side(several, request):
    client = request.getfixturevalue("client") if several else None
    X = points()
    futures = [submit(DensityPeaks(k, client=client, device="cpu"), X) for k in (2, 3, 4, 5)]
    found = {future.result().n_clusters_: future.result().labels_ for future in as_completed(futures, WAIT_LIMIT)}
    for k in (2, 3, 4, 5):
        np.testing.assert_array_equal(found[k], DensityPeaks(k, client=None, device="cpu").fit(X).labels_)
    weighted = submit(DensityPeaks(2, client=client, device="cpu"), X, sample_weight=np.arange(3000))
    assert len(weighted.result(WAIT_LIMIT).labels_) == 3000
    assert not weighted.cancel() and not weighted.cancelled()


def test_errors_are_those_of_the_fit():
    future = submit(DensityPeaks(5, client=None), points(4))
    with pytest.raises(InputError, match="n_samples=4 should be >= n_clusters=5"):
        future.result(WAIT_LIMIT)
    assert isinstance(future.exception(), InputError)
    with pytest.raises(InputError, match="model=int should be an estimator"):
        submit(3, points())


@pytest.mark.parametrize("name", ["sample_weights", "n_clusters", "y", "provenance", "dataset"])
def test_what_no_fit_takes_is_refused_at_once(name):
    with pytest.raises(TypeError, match=rf"{name}= is not a parameter of DensityPeaks.fit, .* sample_weight; pass"):
        submit(DensityPeaks(2, client=None), points(), **{name: 1})
    with pytest.raises(InputError, match=r"sample_weight= is not a parameter of AffinityPropagation.fit, "):
        submit(AffinityPropagation(client=None), points(), sample_weight=np.ones(3000))
    assert not fits()


@pytest.mark.parametrize("several", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["here", "on ranks"])
def test_a_cancelled_fit_stops_its_ranks(several, request):
    client = request.getfixturevalue("client") if several else None
    begun = threading.Event()

    def on_progress(event):
        if event["stage"] == "iterate":
            begun.set()

    future = submit(endless(client), points(), on_progress=on_progress)
    assert begun.wait(WAIT_LIMIT)
    assert future.cancel() and future.cancel() and future.cancelled()
    assert wait([future], WAIT_LIMIT).done == {future}
    with pytest.raises(CancelledError):
        future.result()
    wait_for(lambda: not fits(), WAIT_LIMIT)  # the thread ends when all ranks have stopped
    again = submit(DensityPeaks(2, client=client, device="cpu"), points())
    assert again.result(WAIT_LIMIT).n_clusters_ == 2


@pytest.mark.slow
def test_a_fit_that_waits_for_workers_is_cancelled(client):
    running = submit(endless(client), points())
    wait_for(lambda: any(client.run(_runs).values()), WAIT_LIMIT)
    waiting = submit(DensityPeaks(2, client=client, device="cpu"), points())
    assert waiting.cancel() and running.cancel()
    wait_for(lambda: not fits(), WAIT_LIMIT)
    assert submit(DensityPeaks(2, client=client, device="cpu"), points()).result(WAIT_LIMIT).n_clusters_ == 2


def _runs() -> int:
    from mgclust.engine.dask import tasks

    return len(tasks._RUNS)


@pytest.mark.slow
def test_a_fit_that_waits_for_workers_to_come_is_cancelled(client):
    waiting = submit(DensityPeaks(2, client=client, device="cpu", n_workers=9), points())
    wait_for(lambda: client.run_on_scheduler(_wanted) == 9, WAIT_LIMIT)
    assert waiting.cancel()
    wait_for(lambda: not fits(), 10)  # not only when the wait has ended
    assert client.run_on_scheduler(_wanted) == 0


def _wanted(dask_scheduler):
    plugin = dask_scheduler.plugins.get("mgclust-leases")
    return plugin._wanted() if plugin else 0


@pytest.mark.slow
def test_a_fit_has_the_client_that_is_current_where_it_began(client):
    with client.as_current():
        future = submit(DensityPeaks(2, device="cpu"), points())
    assert future.result(WAIT_LIMIT).result_.hardware["workers"] == 4


@pytest.mark.slow
def test_coroutines_await_fits_with_an_asynchronous_client(client):
    X = points()
    expected = DensityPeaks(3, client=None, device="cpu").fit(X).labels_

    async def main():
        async with distributed.Client(client.scheduler.address, asynchronous=True, set_as_default=False) as own:
            model = DensityPeaks(3, client=own, device="cpu")
            with pytest.raises(InputError, match=r"await asyncio\.to_thread\(function"):
                model.fit(X)
            chunked = own.persist(da.from_array(X, chunks=(700, 2)))
            other = DensityPeaks(2, client=own, device="cpu")
            there, _ = await asyncio.gather(submit(model, chunked), submit(other, X))
            labels = await own.compute(there.labels_)
            task = asyncio.ensure_future(_awaited(submit(endless(own), X)))
            await asyncio.sleep(1.0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            again = await submit(DensityPeaks(2, client=own, device="cpu"), X)
            return labels, other.labels_, again.labels_

    labels, two, again = asyncio.run(asyncio.wait_for(main(), WAIT_LIMIT))
    np.testing.assert_array_equal(labels, expected)
    np.testing.assert_array_equal(two, again)


async def _awaited(future):
    return await future


def test_what_would_wait_in_the_event_loop_says_how_not_to(client):
    """Each ended in an error of Python's, or told to await what cannot do it."""

    async def main():
        async with distributed.Client(client.scheduler.address, asynchronous=True, set_as_default=False) as own:
            X = da.from_array(points(), chunks=(1000, 2))
            model = await submit(DensityPeaks(2, client=own, device="cpu"), X)
            for call in (
                lambda: model.predict(X),
                lambda: model.result_.compute(),
                lambda: silhouette_samples(points(), model.labels_, client=own),
                lambda: compare_labels(model.labels_, np.zeros(3000, int)),
            ):
                with pytest.raises(
                    InputError, match=r"is asynchronous, .* await asyncio.to_thread\(function, \.\.\.\)"
                ):
                    call()
            labels = await asyncio.to_thread(model.predict, X)
            return (await asyncio.to_thread(model.result_.compute)).labels, await own.compute(labels)

    fitted, predicted = asyncio.run(main())
    np.testing.assert_array_equal(fitted, predicted)
