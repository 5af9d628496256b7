"""A hand-tuned number that can be moved without a figure changing has no business here.

Each field of each tuning of the decoders and plans is moved by
``benchmarks/tuning.py``, on its synthetic cases.
"""

import importlib.util
import sys
from dataclasses import fields
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "tuning.py"


def load_script():
    spec = importlib.util.spec_from_file_location("tuning_benchmark", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    sys.path.insert(0, str(SCRIPT.parent))  # as for a script that is run
    try:
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(str(SCRIPT.parent))
    return module


tuning = load_script()
TUNINGS = tuning.find_tunings()


def test_tunings_are_found_and_their_cases_are_of_tunings():
    assert TUNINGS
    assert set(tuning.BUILDERS) <= set(TUNINGS)


@pytest.mark.parametrize("name", TUNINGS)
def test_every_hand_tuned_number_says_what_it_means_and_what_set_it(name):
    cls = TUNINGS[name]
    text = Path(sys.modules[cls.__module__].__file__).read_text("utf-8")
    for field in fields(cls):
        after = text.split(f"class {name}", 1)[1].split(f"\n    {field.name}:", 1)[1]
        lines = after.split("\n")[1:]
        assert lines[0].lstrip().startswith(('"""', 'r"""')), field.name


@pytest.mark.full
@pytest.mark.parametrize("name", TUNINGS)
def test_every_hand_tuned_number_is_noticed_when_it_is_moved(name):
    cases = tuning.cases_for(name)
    assert cases, f"benchmarks/tuning.py has no cases of {name}"
    found = tuning.measure(TUNINGS[name], cases)
    assert [one.field for one in found if not one.is_noticed] == []
