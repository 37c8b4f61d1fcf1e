"""The command ``sordino``."""

import sys

from ._sordino import command


def main() -> int:
    """Runs the command with the arguments in ``sys.argv``."""
    return command(["sordino", *sys.argv[1:]])


if __name__ == "__main__":
    sys.exit(main())
