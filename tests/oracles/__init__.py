"""The methods in plain NumPy and float64; they share no code with mgclust."""
