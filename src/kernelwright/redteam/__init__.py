"""The adversarial corpus: cheats and legitimate candidates, and the check that the judge distinguishes them."""
