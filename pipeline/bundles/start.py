"""Run this bundle: `python run.py`, with Python 3.11 or newer and torch. Results are then in `results.tar`.

The file lies at the top of every bundle, as run.py.
"""

import os
import sys

if sys.version_info < (3, 11):  # noqa: UP036 (it is run by whatever is there)
    sys.exit("error: this needs Python 3.11 or newer; this is Python " + ".".join(map(str, sys.version_info[:3])))

folder = os.path.dirname(os.path.abspath(__file__))  # noqa: PTH100, PTH120 (older versions must get this far)
sys.path.insert(0, folder)

from pipeline.bundles.running import main  # noqa: E402

if __name__ == "__main__":
    if sys.argv[1:]:
        print(__doc__)
        sys.exit(0 if sys.argv[1] in ("-h", "--help") else 2)
    sys.exit(main(folder))
