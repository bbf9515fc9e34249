"""`python -m frazil.cli` is `frazil`."""

from __future__ import annotations

import sys

from frazil.cli.app import main

if __name__ == "__main__":
    sys.exit(main())
