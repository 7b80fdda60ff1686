"""What a backend offers: contracts and plain records, the same for every backend.

Each contract has the file name that its implementations have in gpu/liverank_gpu/backends/cpu and
gpu/liverank_gpu/backends/cuda, and an operation has one name in all of them and in the kernels.
gpu/liverank_gpu/backends/reference says in the fewest words what each computes.
"""
