"""Problems and candidates, loaded from every accepted form."""

from kernelwright.problems.problem import Candidate, Problem

__all__ = ["Candidate", "Problem"]
