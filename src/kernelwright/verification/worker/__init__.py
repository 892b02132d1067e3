"""What runs in the candidate's process."""
