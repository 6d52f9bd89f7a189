"""Declarations of methods, apart from the estimators: quick to import, and the same."""

import subprocess
import sys

import pytest

from mgclust.algorithms import METHODS, _Declarations, declarations


@pytest.mark.parametrize("method", METHODS)
def test_an_estimator_is_what_its_declaration_says(method):
    declared, estimator = _Declarations()[method], METHODS[method]
    assert issubclass(estimator, declared) and "__init__" not in vars(estimator)
    assert declared.summary() == estimator.summary()
    assert declared.options() == estimator.options() and declared.method == method
    defaults = estimator().get_params()
    assert {option.name: option.default for option in declared.options()}.items() <= defaults.items()


def test_declarations_are_the_methods_once_these_are_there():
    assert declarations() is METHODS


def test_help_imports_nothing_heavy():
    script = (
        "import sys\n"
        "from mgclust.cli import run_command\n"
        "for name in ('density-peaks', 'affinity-propagation', 'fuzzy-c-means', 'communities', 'silhouette'):\n"
        "    assert run_command(['run', name, '--help']) == 0\n"
        "heavy = {'dask', 'cupy', 'pyarrow', 'zarr', 'pandas', 'fsspec', 'scipy', 'sklearn', 'numba', 'matplotlib'}\n"
        "print(sorted(heavy & set(sys.modules)), file=sys.stderr)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60)
    assert done.stderr.strip() == "[]" and "--dc-fraction" in done.stdout and "--strategy" in done.stdout


@pytest.mark.parametrize("estimator", METHODS.values())
def test_an_argument_that_is_no_parameter_is_refused_by_the_name_of_the_estimator(estimator):
    message = rf"^{estimator.__name__}\.__init__\(\) got an unexpected keyword argument 'clusters'"
    with pytest.raises(TypeError, match=message):
        estimator(clusters=3)
