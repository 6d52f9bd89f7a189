"""Similarities of rows, with the noise that breaks ties."""
