"""``python -m kernelmark`` is the command ``kernelmark``."""

from kernelmark.cli import main

if __name__ == "__main__":
    main()
