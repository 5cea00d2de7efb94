"""``python -m draftwood`` is the command ``draftwood``."""

from draftwood.cli.main import main

if __name__ == "__main__":
    main()
