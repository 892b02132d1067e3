"""Measured results, each tied to the code that ran: `evidence/<machine>/<kind>.jsonl`."""
