"""The examples in the docstrings of the extension module are correct."""

import doctest
import inspect

import pytest
import sordino._sordino as native


def documented():
    """The functions, classes and methods of the extension module that have examples."""
    for name, item in vars(native).items():
        members = vars(item).items() if inspect.isclass(item) else []
        for label, member in [(name, item), *((f"{name}.{key}", value) for key, value in members)]:
            text = inspect.getdoc(getattr(member, "__func__", member)) or ""
            if ">>>" in text and not label.startswith("_"):
                yield pytest.param(label, text, id=label)


@pytest.mark.parametrize("name, text", list(documented()))
def test_examples_of_the_extension_module_are_correct(name, text):
    example = doctest.DocTestParser().get_doctest(text, {}, name, None, None)
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
    report = []
    runner.run(example, out=report.append)
    assert runner.failures == 0 and runner.tries > 0, "".join(report)


def test_all_public_names_have_a_docstring():
    import sordino

    for name in sordino.__all__:
        if name != "__version__":
            assert inspect.getdoc(getattr(sordino, name)), name
