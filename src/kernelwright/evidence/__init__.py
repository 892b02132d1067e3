"""Measured results, each with digests of the code that ran: `evidence/<machine>/<kind>.jsonl`."""
