"""The records of all nouns, errors, units and JSON. Imports nothing else of this package."""
