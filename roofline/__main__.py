"""The command ``roofline`` and ``python -m roofline``."""

import gc

gc.disable()  # while starting: what imports make lives to the end, and looking for garbage among it costs 5 % of the start

from roofline.cli import main  # noqa: E402

gc.freeze()
gc.enable()

if __name__ == "__main__":
    main()
