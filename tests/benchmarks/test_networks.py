"""The networks that benchmarks replay."""

from __future__ import annotations

from pathlib import Path

from benchmarks.networks import read_network


def test_a_temporal_network_begins_with_nine_tenths_and_goes_on_in_order_of_time(
    tmp_path: Path,
) -> None:
    file = tmp_path / "temporal.txt"
    # keys are met in order of time: 40 is the second, though it stands last in the file
    times = [10**9 + second for second in (0, *range(2, 20), 1)]
    keys = [10, *range(100, 118), 40]
    file.write_text("".join(f"{key} 7 {time}\n" for key, time in zip(keys, times, strict=True)))
    network = read_network(file)
    assert (len(network), network.first) == (20, 18)
    assert network.initial.insert_sources[:3].tolist() == [0, 2, 3]
    assert network.initial.insert_targets.tolist() == [1] * 18
    batches = network.batches(size=1, most=100)
    assert [batch.insert_sources.tolist() for batch in batches] == [[19], [20]]
    assert [batch.operations for batch in network.batches(size=3, most=100)] == [2]


def test_a_registry_begins_with_its_first_snapshot_and_no_batch_spans_two(tmp_path: Path) -> None:
    file = tmp_path / "registry.events.txt"
    first = "".join(f"0 + {source} 0\n" for source in range(1, 9))
    second = "".join(f"1 - {source} 0\n" for source in range(1, 4)) + "1 + 20 0\n1 + 21 0\n"
    file.write_text(first + second + "2 - 20 0\n2 + 30 0\n")
    network = read_network(file)
    assert network.first == len(network.initial.insert_sources) == 8
    batches = network.batches(size=2, most=100)
    assert [batch.operations for batch in batches] == [2, 2, 1, 2]
    deleted = [ids for batch in batches[:3] for ids in batch.delete_sources.tolist()]
    inserted = [ids for batch in batches[:3] for ids in batch.insert_sources.tolist()]
    assert (len(deleted), len(inserted)) == (3, 2)
    assert deleted != sorted(deleted) or inserted != sorted(inserted)
    assert batches[3].delete_sources.tolist()[0] in inserted
    assert len(network.batches(size=2, most=2)) == 2
    # the order inside an interval is drawn, the same every time
    again = read_network(file)
    assert again.sources.tolist() == network.sources.tolist()
