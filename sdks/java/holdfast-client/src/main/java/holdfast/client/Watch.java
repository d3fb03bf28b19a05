package holdfast.client;

import holdfast.v1.EventPosition;
import holdfast.v1.WatchFrame;
import holdfast.v1.WatchRequest;
import holdfast.v1.WatchServiceGrpc;
import java.util.Map;
import java.util.Queue;
import java.util.TreeMap;

/**
 * Everything that happens to the locks under a prefix, each event once and in order. In a cluster
 * with several groups, there is an order within each group, hence for each lock. It is for people
 * and dashboards: a program that needs to know whether it holds a lock asks its guard.
 */
public final class Watch extends Feed<WatchRequest, WatchFrame, WatchEvent> {
  private final String prefix;
  private boolean withSnapshot;
  private boolean hasSnapshotBegun;

  /** After what to go on, by group; empty before the first was told. */
  private final Map<Integer, EventPosition> positions = new TreeMap<>();

  Watch(Engine engine, String prefix, boolean withSnapshot) {
    super(engine, WatchServiceGrpc.getWatchMethod());
    this.prefix = prefix;
    this.withSnapshot = withSnapshot;
  }

  @Override
  WatchRequest request() {
    WatchRequest.Builder request = WatchRequest.newBuilder().setPrefix(prefix);
    if (positions.size() == 1) {
      // Older nodes know one group.
      request.setAfter(positions.values().iterator().next());
    } else {
      request.addAllAfterGroups(positions.values());
    }
    return request.setWithoutSnapshot(!withSnapshot).build();
  }

  @Override
  boolean canGoOn() {
    return !positions.isEmpty() || !hasSnapshotBegun;
  }

  @Override
  void take(WatchFrame frame, Queue<WatchEvent> added) {
    if (frame.hasPosition()) {
      positions.put(frame.getPosition().getGroup(), frame.getPosition());
    }
    frame.getLocksList().forEach(lock -> added.add(WatchEvent.of(lock)));
    hasSnapshotBegun |= frame.getLocksCount() > 0 || frame.getSnapshotComplete();
    if (frame.getSnapshotComplete()) {
      added.add(WatchEvent.of(WatchEvent.Kind.SNAPSHOT_COMPLETE, ""));
    }
    frame.getEventsList().forEach(event -> added.add(WatchEvent.of(event)));
  }

  @Override
  void restart(String why, Queue<WatchEvent> added) {
    positions.clear();
    hasSnapshotBegun = false;
    withSnapshot = true;
    added.add(WatchEvent.of(WatchEvent.Kind.RESTARTED, why));
  }
}
