"""What several tests share: point sets and graphs, cases that CPU and GPU tests run, a service, a browser.

`rank_jobs` holds what tests run on ranks: Dask workers import it by its name.
"""
