"""`python -m localspec`."""

from localspec.cli.main import main

main()
