"""The accounting examples of docs/migration.md are correct."""

import pathlib
import re

import pytest

PAGE = pathlib.Path(__file__).parents[2] / "docs" / "migration.md"


@pytest.mark.parametrize("section, package", [("From dp_accounting", "dp_accounting"), ("From Opacus' accountants", "opacus")])
@pytest.mark.filterwarnings("ignore")
def test_examples_of_the_migration_page_are_correct(section, package):
    pytest.importorskip(package)
    text = PAGE.read_text().split(f"## {section}\n")[1].split("\n## ")[0]
    code = "\n".join(re.findall(r"```python\n(.*?)```", text, re.DOTALL))
    assert code.count("assert ") >= 2
    exec(compile(code, str(PAGE), "exec"), {})


def test_accounting_calls_in_the_tables_are_valid():
    """Each `Step(...)` in the tables can be constructed."""
    import sordino

    calls = re.findall(r"`(Step\([^`]*\))`", PAGE.read_text())
    assert len(calls) >= 6
    for call in calls:
        step = eval(call, {"Step": sordino.Step, "z": 1.5, "a": 1.0, "b": 2, "q": 0.1, "n": 100, "t": 7})
        assert isinstance(step, sordino.Step), call
