"""Settings of the whole suite."""

import os

# Tiny models are slower on several threads, on a busy machine by far; before torch is imported, for children too.
os.environ["OMP_NUM_THREADS"] = "1"

from hypothesis import settings

# Machines differ in speed, laws do not: no test may fail for being slow.
settings.register_profile("draftwood", deadline=None, print_blob=True)
settings.load_profile("draftwood")
