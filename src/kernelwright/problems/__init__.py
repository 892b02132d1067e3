"""Load problems and candidates from every supported form."""

from kernelwright.problems.candidate_loaders import SourceLoader, register_loader
from kernelwright.problems.loading import load_candidate, load_problem
from kernelwright.problems.problem import Candidate, Problem

__all__ = ["Candidate", "Problem", "SourceLoader", "load_candidate", "load_problem", "register_loader"]
