"""Modules that scikit-learn imports and no fit needs wait until they are used."""

import subprocess
import sys

import pytest

from mgclust.algorithms.scikit_learn import deferred


@pytest.fixture
def late(tmp_path, monkeypatch):
    (tmp_path / "imported_late.py").write_text("print('imported')\nvalue = 3\n")
    monkeypatch.syspath_prepend(tmp_path)
    yield
    sys.modules.pop("imported_late", None)


def test_a_module_waits_until_it_is_used(late, capsys):
    with deferred("imported_late", "not_installed_at_all"):
        import imported_late as early

        with pytest.raises(ModuleNotFoundError):
            import not_installed_at_all  # noqa: F401
    assert "imported_late" not in sys.modules and capsys.readouterr().out == ""
    import imported_late

    assert capsys.readouterr().out == "imported\n" and imported_late is not early
    assert early.value == 3 and early.__file__ == imported_late.__file__ and capsys.readouterr().out == ""


def test_a_module_that_is_used_meanwhile(late, capsys):
    with deferred("imported_late"):
        from imported_late import value
    assert value == 3 and capsys.readouterr().out == "imported\n" and sys.modules["imported_late"].value == 3


def test_a_part_of_a_package_waits_too(tmp_path, monkeypatch, capsys):
    (tmp_path / "package_of_two").mkdir()
    (tmp_path / "package_of_two" / "__init__.py").write_text("")
    (tmp_path / "package_of_two" / "late.py").write_text("print('imported')\nvalue = 3\n")
    monkeypatch.syspath_prepend(tmp_path)
    import package_of_two

    with deferred("package_of_two.late"):
        import package_of_two.late as early
    assert "package_of_two.late" not in sys.modules and not hasattr(package_of_two, "late")
    assert capsys.readouterr().out == ""
    import package_of_two.late

    assert package_of_two.late is sys.modules["package_of_two.late"] is not early
    assert early.value == package_of_two.late.value == 3 and capsys.readouterr().out == "imported\n"
    for name in ("package_of_two.late", "package_of_two"):
        del sys.modules[name]


def test_what_was_imported_before_stays():
    with deferred("subprocess"):
        import subprocess as same
    assert same is subprocess is sys.modules["subprocess"]


@pytest.mark.slow
def test_a_fit_needs_neither_pandas_nor_statistics():
    script = (
        "import sys, numpy\n"
        "from mgclust import DensityPeaks\n"
        "DensityPeaks(2, client=None, device='cpu').fit(numpy.random.default_rng(0).random((200, 2)))\n"
        "late = {'pandas', 'scipy.stats', 'numpy.f2py', 'numpy.testing', 'dask', 'matplotlib'}\n"
        "print(sorted(late & set(sys.modules)))\n"
        "import scipy, scipy.stats, numpy.f2py, pandas, sklearn.utils.fixes as fixes\n"
        "assert callable(numpy.f2py.run_main) and callable(numpy.testing.assert_array_equal)\n"
        "print(scipy.stats.norm.name, fixes.scipy.stats is scipy.stats, fixes.pd.DataFrame is pandas.DataFrame)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=120)
    assert done.stdout == "[]\nnorm True True\n"
