"""Write the golden digests again.

``PYTHONPATH=src:tests python -m portable.make_golden`` is all it takes. A change of
these numbers means that sketches of two releases do not merge any more.
"""

import json
from pathlib import Path

from portable.digests import golden_digests

__all__ = ["GOLDEN"]

GOLDEN = Path(__file__).with_name("golden.json")

if __name__ == "__main__":
    GOLDEN.write_text(json.dumps(golden_digests(), indent=1, sort_keys=True) + "\n")
