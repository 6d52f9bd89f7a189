"""What every other folder stands on: errors, progress, hashing. Nothing here imports another folder of mgclust."""
