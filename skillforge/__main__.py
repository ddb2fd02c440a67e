"""`python -m skillforge` is the `skillforge` command."""

from skillforge.cli.main import main

main()
