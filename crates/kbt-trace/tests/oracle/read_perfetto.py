"""Reads a Perfetto trace with Perfetto's own definitions, checks its structure and prints what it holds as JSON."""

import collections
import json
import sys

from google.protobuf.unknown_fields import UnknownFieldSet
from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace, TrackDescriptor, TrackEvent

trace = Trace()
with open(sys.argv[1], "rb") as file:
    trace.ParseFromString(file.read())

tracks, counts = {}, collections.Counter()
opened, last = collections.defaultdict(list), collections.defaultdict(int)
begun, ended = collections.Counter(), collections.Counter()
slices, values = [], collections.defaultdict(list)
for packet in trace.packet:
    for message in (packet, packet.track_event, packet.track_descriptor, packet.track_descriptor.counter):
        assert len(UnknownFieldSet(message)) == 0, "a field that the definitions do not know"
    assert packet.trusted_packet_sequence_id == 1
    if packet.HasField("track_descriptor"):
        track = packet.track_descriptor
        assert track.uuid not in tracks, "a track described twice"
        assert not track.parent_uuid or track.parent_uuid in tracks, "a parent comes first"
        assert track.parent_uuid or track.child_ordering == TrackDescriptor.EXPLICIT
        assert not track.HasField("counter") or track.counter.unit_name == "slots"
        tracks[track.uuid] = track
        continue
    event = packet.track_event
    track = tracks[event.track_uuid]
    assert packet.timestamp >= last[event.track_uuid], "time runs forward"
    last[event.track_uuid] = packet.timestamp
    counter = event.type == TrackEvent.TYPE_COUNTER
    assert track.HasField("counter") == counter, "counters and nothing else on counters' tracks"
    if event.type == TrackEvent.TYPE_SLICE_BEGIN:
        opened[event.track_uuid].append((event.name, packet.timestamp))
    elif event.type == TrackEvent.TYPE_SLICE_END:
        name, since = opened[event.track_uuid].pop()
        slices.append([track.name, name, since, packet.timestamp])
    elif event.type == TrackEvent.TYPE_INSTANT:
        counts["instants"] += 1
    elif counter:
        values[track.name].append(event.counter_value)
        assert event.counter_value >= 0
    else:
        raise AssertionError(f"type {event.type}")
    begun.update(event.flow_ids)
    ended.update(event.terminating_flow_ids)

assert not any(opened.values()), "every slice ends"
assert begun == ended, "every flow has both ends"
print(
    json.dumps(
        {
            "tracks": [track.name for track in tracks.values()],
            "slices": sorted(slices),
            "instants": counts["instants"],
            "flows": sum(ended.values()),
            "counters": values,
        }
    )
)
