"""PageRank by programs of the papers' authors and ours, on one device, at equal measured error.

A folder has checkouts of their repositories, by these names:

    pagerank-cuda-dynamic  github.com/puzzlef/pagerank-cuda-dynamic, a164e37
    gunrock                github.com/gunrock/gunrock, 01f125c
    dynamicppr             github.com/guowentian/dynamicppr, f78f3a4

each with its history, or with the commit in a file COMMIT. They are built in its folder `build`;
the .cu files here are programs that call their functions and write ranks. What is not there is left
out, and named.

    python -m benchmarks.authors ../shared/data --folder ../authors

Their times are those that their programs measure: of Sahu the partition by degree, initial ranks,
marking and iterations, the mean of the repeats; of Gunrock the iterations, the median; of Guo and
others the update of the residual and the pushes. Transfers, allocation and the update of the graph
are in none, and not in ours: the median of what a batch does to the residual, of marking and of
solving; of a query for one vertex, from the call to its answer on the host. Ours runs at the
loosest tried target whose measured error is at most theirs, and proves it as it goes.
"""
