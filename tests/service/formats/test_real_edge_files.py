"""Files of real graphs, if they are present."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from liverank_service.formats.edge_files import read_edge_list

DATA = Path(__file__).parents[4] / "shared" / "data"

# file, vertices in edges, rows, distinct edges, has times: the counts of the data's README
REAL_FILES = [
    ("CollegeMsg/CollegeMsg.txt.gz", 1_899, 59_835, 20_296, True),
    ("cnr-2000/cnr-2000.txt.zst", 325_557, 3_216_152, 3_216_152, False),
    ("dblp-2010/dblp-2010.txt.zst", 300_647, 1_615_400, 1_615_400, False),
    ("ego-twitter-gstest/twitter_e.csv.zst", 81_306, 1_768_135, 1_768_135, False),
    ("higgs-twitter/higgs-mention_network.edgelist.gz", 116_408, 150_818, 150_818, False),
    ("higgs-twitter/higgs-reply_network.edgelist.gz", 38_918, 32_523, 32_523, False),
    ("higgs-twitter/higgs-retweet_network.edgelist.gz", 256_491, 328_132, 328_132, False),
    ("lagraph-small/karate.mtx", 34, 156, 156, False),
    ("lagraph-small/ldbc-directed-example.mtx", 10, 17, 17, False),
    ("lagraph-small/ldbc-undirected-example.mtx", 9, 24, 24, False),
    ("networkrepository-ia/fb-forum.txt.zst", 899, 33_720, None, True),
    ("networkrepository-ia/fb-messages.txt.zst", 1_899, 61_734, None, True),
    ("networkrepository-ia/ia-enron-employees.txt.zst", 151, 50_572, None, True),
    ("osm-roads/delhi-roads.gr.bin.zst", 231_161, None, 279_174, False),
    ("osm-roads/moscow-roads.gr.bin.zst", 411_992, 451_135, 451_027, False),
    ("p2p-Gnutella31/p2p-Gnutella31.e.zst", 62_586, 147_892, 147_892, False),
    ("pkg-deps/covid-lit.2020-03-13.links.bin.zst", 463_997, None, 660_442, False),
    ("pkg-deps/npm.2016-08-26.links.bin.zst", 228_028, None, 807_758, False),
    ("soc-sign-bitcoin/soc-sign-bitcoinalpha.csv.zst", 3_783, 24_186, 24_186, True),
    ("soc-sign-bitcoin/soc-sign-bitcoinotc.csv.zst", 5_881, 35_592, 35_592, True),
    ("sx-askubuntu-a2q/sx-askubuntu-a2q.txt.gz", 137_517, 280_102, 262_106, True),
    ("sx-mathoverflow/sx-mathoverflow.txt.gz", 24_818, 506_550, 239_978, True),
    ("tgn-ml/ml_enron.txt.zst", 184, 125_235, 3_125, True),
    ("tgn-ml/ml_wikipedia.txt.zst", 9_227, 157_474, 18_257, True),
    ("wiki-Vote/wiki-Vote.txt.zst", 7_115, 103_689, 103_689, False),
]


@pytest.mark.skipif(not DATA.is_dir(), reason=f"the real graphs are not at {DATA}")
@pytest.mark.parametrize(("name", "vertices", "rows", "distinct", "timed"), REAL_FILES)
def test_a_real_file_has_the_published_counts(
    name: str, vertices: int, rows: int | None, distinct: int | None, timed: bool
) -> None:
    edges = read_edge_list(DATA / name)
    sources, targets = edges.sources.to_numpy(), edges.targets.to_numpy()
    assert len(np.unique(np.concatenate([sources, targets]))) == vertices
    assert rows is None or len(edges) == rows
    assert distinct is None or len(np.unique(sources << 32 | targets)) == distinct
    assert (edges.times is not None) == timed


@pytest.mark.skipif(not DATA.is_dir(), reason=f"the real graphs are not at {DATA}")
@pytest.mark.parametrize(
    ("name", "inserted", "deleted", "first", "last"),
    [
        ("npm.events.txt.zst", 501_411, 27_504, 344_042, 473_907),
        ("rubygems.events.txt.zst", None, None, 134_186, 149_562),
    ],
)
def test_a_real_stream_of_events_leads_from_the_first_graph_to_the_last(
    name: str, inserted: int | None, deleted: int | None, first: int, last: int
) -> None:
    edges = read_edge_list(DATA / "pkg-deps" / name)
    assert edges.operations is not None
    assert edges.times is not None
    changes = np.where(edges.operations, 1, -1)
    assert inserted is None or (changes == 1).sum() == inserted
    assert deleted is None or (changes == -1).sum() == deleted
    assert changes[edges.times == 0].sum() == first
    assert changes.sum() == last
