"""Code that runs in the candidate's process."""
