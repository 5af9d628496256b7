"""Coverage-guided fuzzing of the file reader; needs ``pip install atheris``.

Whatever the bytes, the reader answers with a sketch, a map or SketchFileError.

usage: python3 dev.py run benchmarks/fuzz_storage.py -max_total_time=600
"""

import sys

import numpy as np

import sketchlearn as sl
from sketchlearn.errors import SketchFileError, import_extra


def main():
    atheris = import_extra("atheris", "test")
    with atheris.instrument_imports(include=["sketchlearn"]):
        loads, dumps = sl.loads, sl.dumps
    phi = sl.MomentFeatures(2, order="mean")
    seed = dumps(sl.sketch_rows(np.eye(2), phi))

    def one_input(data):
        # Half of the inputs start from a valid file, so that the walls are passed.
        if data[:1] < b"\x80":
            data = data[1:]
        else:
            cut = int.from_bytes(data[1:3], "big") % len(seed)
            data = seed[:cut] + data[3:] + seed[cut + len(data[3:]) :]
        try:
            loads(data)
        except SketchFileError:
            return

    atheris.Setup(sys.argv, one_input)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
