"""Problems and candidates, loaded from every accepted form."""

from kernelwright.problems.loading import load_candidate, load_problem
from kernelwright.problems.problem import Candidate, Problem
from kernelwright.problems.sources import SourceLoader, register

__all__ = ["Candidate", "Problem", "SourceLoader", "load_candidate", "load_problem", "register"]
