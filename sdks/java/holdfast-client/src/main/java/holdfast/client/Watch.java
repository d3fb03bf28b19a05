package holdfast.client;

import holdfast.v1.EventPosition;
import holdfast.v1.WatchFrame;
import holdfast.v1.WatchRequest;
import holdfast.v1.WatchServiceGrpc;
import java.util.Queue;

/**
 * Everything that happens to the locks under a prefix, each event once and in order. It is for
 * people and dashboards: a program that needs to know whether it holds a lock asks its guard.
 */
public final class Watch extends Feed<WatchRequest, WatchFrame, WatchEvent> {
  private final String prefix;
  private boolean withSnapshot;
  private boolean hasSnapshotBegun;

  /** After what to go on; null before the first was told. */
  private EventPosition position;

  Watch(Engine engine, String prefix, boolean withSnapshot) {
    super(engine, WatchServiceGrpc.getWatchMethod());
    this.prefix = prefix;
    this.withSnapshot = withSnapshot;
  }

  @Override
  WatchRequest request() {
    WatchRequest.Builder request = WatchRequest.newBuilder().setPrefix(prefix);
    if (position != null) {
      request.setAfter(position);
    }
    return request.setWithoutSnapshot(!withSnapshot).build();
  }

  @Override
  boolean canGoOn() {
    return position != null || !hasSnapshotBegun;
  }

  @Override
  void take(WatchFrame frame, Queue<WatchEvent> added) {
    if (frame.hasPosition()) {
      position = frame.getPosition();
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
    position = null;
    hasSnapshotBegun = false;
    withSnapshot = true;
    added.add(WatchEvent.of(WatchEvent.Kind.RESTARTED, why));
  }
}
