"""How many have to be vaccinated until an illness does not spread through a town? Run `python -m vaccination -h`."""
