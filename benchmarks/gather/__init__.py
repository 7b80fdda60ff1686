"""A sweep that reads less at random: two other layouts of the in-lists, beside the product's.

``pages``  partition-centric: sums of a tile of targets are formed in shared memory, from edges in
           the order of their sources; a contribution is read once for each tile
``hubs``   the in-neighbours of highest out-degree in a part of each row with ids of 16 bits, their
           contributions in shared memory

Both sweep from the same contributions of 16 bits to the same y and r, and follow batches.
"""
