"""`python -m pipeline`: profiles, tracking, and a check of the machine."""

from pipeline.cli import main

if __name__ == "__main__":
    main()
