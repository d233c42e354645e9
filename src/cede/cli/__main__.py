"""`python -m cede.cli`, where no script is installed."""

from cede.cli.main import main

if __name__ == "__main__":
    main()
