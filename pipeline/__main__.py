"""`python -m pipeline`: profiles, tracking, and a look at the machine."""

from pipeline.cli import main

if __name__ == "__main__":
    main()
