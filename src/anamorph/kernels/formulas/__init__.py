"""The arithmetic of one voxel, written once and compiled for processors and GPUs alike.

A formula takes and returns numbers. Which numbers those are (memory, counting, vectors, threads)
is the business of the loops in `kernels.cpu` and `kernels.cuda`.

Constants take the type of an argument, ``type(x)(0.5)``: a plain 0.5 would be float64, and turn
float32 into it.
"""
