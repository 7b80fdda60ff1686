"""A sweep by rows, by pages, and by another layout of the in-lists that reads less at random.

``pages``  the product's on large graphs: liverank_gpu.graph.in_pages
``hubs``   the in-neighbours of highest out-degree in a part of each row with ids of 16 bits, their
           contributions in shared memory

All sweep from the same contributions of 16 bits to the same y and r, and follow batches.
"""
