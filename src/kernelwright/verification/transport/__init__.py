"""The verifier's side of a call: inputs into the candidate's process, outputs and times out of it."""
