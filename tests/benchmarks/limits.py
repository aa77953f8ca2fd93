"""Points measured and seconds taken from a limit of 1 to 8 GiB, on the reference."""

import shutil
import tempfile
from pathlib import Path

from largest import sweep


def main():
    store = Path(tempfile.mkdtemp())
    try:
        sweep("gpt", 1, store)  # the probe is paid here
        few = [(len(p["points"]), s) for s, p in (sweep("gpt", 1, store) for _ in range(3))]
        many = [(len(p["points"]), s) for s, p in (sweep("gpt", 8, store) for _ in range(3))]
    finally:
        shutil.rmtree(store)
    print(f"1 GiB: points and seconds {few}")
    print(f"8 GiB: points and seconds {many}")
    points = sorted(n for n, _ in many)[1] - sorted(n for n, _ in few)[1]
    ratio = sorted(s for _, s in many)[1] / sorted(s for _, s in few)[1]
    print(f"points grow by {points}, seconds by a factor of {ratio:.2f}")


if __name__ == "__main__":
    main()
