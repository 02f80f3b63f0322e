"""`python -m connector.cli`."""

from connector.cli import main

if __name__ == "__main__":
    main()
