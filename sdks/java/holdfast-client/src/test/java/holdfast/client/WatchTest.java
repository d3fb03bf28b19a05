package holdfast.client;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import holdfast.v1.EventPosition;
import holdfast.v1.WatchFrame;
import holdfast.v1.WatchRequest;
import java.util.ArrayDeque;
import java.util.List;
import java.util.Queue;
import org.junit.jupiter.api.Test;

/** What a watch asks for when it goes on; no node is dialled. */
class WatchTest {
  private final Queue<WatchEvent> items = new ArrayDeque<>();
  private final Watch watch = Client.builder("127.0.0.1:1").build().watch("a");

  private static EventPosition at(int group, long index) {
    return EventPosition.newBuilder().setGroup(group).setIndex(index).build();
  }

  private void take(EventPosition position) {
    watch.take(WatchFrame.newBuilder().setPosition(position).build(), items);
  }

  @Test
  void it_goes_on_after_the_last_position_of_each_group_and_of_one_group_as_before() {
    WatchRequest fresh = WatchRequest.newBuilder().setPrefix("a").build();
    assertEquals(fresh, watch.request());
    take(at(1, 3));
    take(at(1, 5));
    watch.take(WatchFrame.getDefaultInstance(), items);
    assertEquals(fresh.toBuilder().setAfter(at(1, 5)).build(), watch.request());
    take(at(2, 1));
    List<EventPosition> both = List.of(at(1, 5), at(2, 1));
    assertEquals(fresh.toBuilder().addAllAfterGroups(both).build(), watch.request());
    assertTrue(watch.canGoOn());
    watch.restart("events are missing", items);
    assertEquals(fresh, watch.request());
  }

  @Test
  void it_begins_again_if_a_part_of_the_snapshot_came_and_no_position() {
    watch.take(WatchFrame.newBuilder().setSnapshotComplete(true).build(), items);
    assertFalse(watch.canGoOn());
  }
}
