"""The adversarial corpus: candidates that cheat and legitimate ones, and the check that the judge tells them apart."""
