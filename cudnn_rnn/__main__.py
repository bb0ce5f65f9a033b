"""`python -m cudnn_rnn`; see `cli/main.py`."""

import sys

from cudnn_rnn.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
