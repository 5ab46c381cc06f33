"""What is shown: drawn from the files that the stages wrote, nothing else."""
