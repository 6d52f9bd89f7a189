"""Runs that read files and write a result directory.

`file_run` opens the files, runs a method and saves the result. `label_output` writes labels in the format of the input.
`report` writes the HTML report with its pictures. `mlflow_log` logs a result to a tracking server of MLflow.
"""
