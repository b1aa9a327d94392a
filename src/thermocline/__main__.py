"""`python -m thermocline`."""

from thermocline.cli import main

main()
