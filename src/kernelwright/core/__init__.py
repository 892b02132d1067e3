"""Records, errors, units and JSON documents. Imports no other part of this package."""
