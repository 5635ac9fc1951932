"""`python -m mjp` and `torchrun ... -m mjp`."""

import sys

from mjp.cli.main import main

sys.exit(main())
