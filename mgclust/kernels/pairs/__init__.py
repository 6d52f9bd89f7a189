"""All pairs of rows, by tiles, never stored: sums, counts, histograms, nearest rows, and the metrics they know.

On the CPU `cpu` hands tasks (`cpu_tasks`) to the inner loops (`cpu_loops`), or skips columns that are far away
(`cpu_column_boxes`); on a GPU `gpu` starts (`gpu_launch`) the kernels of ``low.cu`` (at most 16 features), ``high.cu``
and ``any.cu``.
"""
