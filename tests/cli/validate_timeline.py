#!/usr/bin/env python3
"""Validate timelines (spillway run --timeline) against docs/timeline.schema.json, and what a schema cannot say: lanes do
one thing at a time, every message that leaves arrives, later, and both ends lie in spans; samples of memory are in order.

usage: validate_timeline.py FILE...
exit status: 0 all valid, 1 a file has faults (each printed), 2 usage, 3 python3-jsonschema is missing
"""
import bisect
import collections
import json
import pathlib
import sys

import validate_result

SCHEMA = pathlib.Path(__file__).resolve().parents[2] / "docs" / "timeline.schema.json"
GRID = 2e-3  # microseconds: two of the nanoseconds to which times are rounded


def spans_by_lane(events):
    lanes = collections.defaultdict(list)
    for event in events:
        if event["ph"] == "X":
            lanes[event["pid"], event["tid"]].append((event["ts"], event["ts"] + event["dur"], event["name"]))
    return {lane: sorted(spans) for lane, spans in lanes.items()}


def overlaps(lanes):
    """Spans of a lane follow each other or lie within each other, as a viewer stacks them."""
    for (pid, tid), spans in lanes.items():
        for before, after in zip(spans, spans[1:]):
            if after[0] < before[1] - GRID and after[1] > before[1] + GRID:
                yield f"rank {pid}, lane {tid}: {after[2]} begins at {after[0]} us, before {before[2]} ends at {before[1]} us"


def inside(spans, ts):
    """Does any span hold the moment? Spans of a lane follow each other."""
    at = bisect.bisect_right(spans, (ts + GRID, float("inf")))
    return any(begin - GRID <= ts <= end + GRID for begin, end, _ in spans[max(0, at - 3):at])


def lost_messages(events, lanes):
    ends = {"s": {}, "f": {}}
    for event in events:
        if event["ph"] in ends:
            mine = ends[event["ph"]]
            if event["id"] in mine:
                yield f"message {event['id']} has two ends {event['ph']}"
            mine[event["id"]] = event
            if not inside(lanes.get((event["pid"], event["tid"]), []), event["ts"]):
                yield f"message {event['id']}: its end {event['ph']} at {event['ts']} us lies in no span"
    sent, received = ends["s"], ends["f"]
    for number in sorted(sent.keys() ^ received.keys()):
        yield f"message {number} has one end only"
    for number in sent.keys() & received.keys():
        if received[number]["ts"] < sent[number]["ts"] - GRID:
            yield f"message {number} arrives before it leaves"


def unordered_counters(events):
    last = collections.defaultdict(float)
    for event in events:
        if event["ph"] == "C":
            key = event["pid"], event["name"]
            if event["ts"] < last[key]:
                yield f"rank {key[0]}: {key[1]} goes back in time at {event['ts']} us"
            last[key] = event["ts"]


def nameless(timeline):
    ranks = range(timeline["otherData"]["ranks"])
    named = [(e["pid"], e.get("tid"), e["args"]["name"]) for e in timeline["traceEvents"] if e["name"] in ("process_name", "thread_name")]
    tracks = {(pid, tid): name for pid, tid, name in named}
    for rank in ranks:
        if not tracks.get((rank, None), "").startswith(f"rank {rank}"):
            yield f"rank {rank} has no process of its name"
        lanes = [tracks.get((rank, tid)) for tid in (1, 2, 3, 4)]
        if lanes != ["compute", "network", "copy-out", "copy-in"]:
            yield f"rank {rank}: its lanes are {lanes}"
    if len(tracks) != len(named) or len(tracks) != 5 * len(ranks):
        yield f"{len(named)} names for {len(ranks)} ranks with 4 lanes each"


def faults_of(timeline):
    """What is wrong with a timeline that follows the schema."""
    events = timeline["traceEvents"]
    lanes = spans_by_lane(events)
    yield from nameless(timeline)
    yield from overlaps(lanes)
    yield from lost_messages(events, lanes)
    yield from unordered_counters(events)


def peaks(timeline):
    """By rank the largest sum of the categories of device memory, in bytes."""
    largest = collections.Counter()
    for event in timeline["traceEvents"]:
        if event["ph"] == "C" and event["name"].startswith("memory"):
            largest[event["pid"]] = max(largest[event["pid"]], sum(event["args"].values()))
    return dict(largest)


def main(files):
    status = validate_result.main(files, SCHEMA, __doc__)
    if status != 0:
        return status
    faults = [f"{file}: {fault}" for file in files for fault in faults_of(json.loads(pathlib.Path(file).read_text()))]
    print("\n".join(faults[:40]) or "lanes, messages and counters are consistent")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
