"""Settings of the whole suite."""

from hypothesis import settings

# Machines differ in speed, laws do not: no test may fail for being slow.
settings.register_profile("draftwood", deadline=None, print_blob=True)
settings.load_profile("draftwood")
