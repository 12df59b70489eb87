"""`python -m fedshot`, where the command `fedshot` is not on the path."""

from fedshot.cli import main

if __name__ == "__main__":
    main()
