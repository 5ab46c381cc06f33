"""`python -m pipeline`: the commands of `pipeline.cli`."""

from pipeline.cli import main

if __name__ == "__main__":
    main()
