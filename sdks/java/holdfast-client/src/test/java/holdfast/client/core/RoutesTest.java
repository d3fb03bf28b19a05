package holdfast.client.core;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import holdfast.client.errors.SeveralGroupsException;
import holdfast.v1.AcquireAllRequest;
import holdfast.v1.AcquireRequest;
import holdfast.v1.Failure;
import holdfast.v1.GroupMap;
import holdfast.v1.GroupRoute;
import holdfast.v1.Member;
import holdfast.v1.Operation;
import holdfast.v1.Reason;
import holdfast.v1.SlotRun;
import holdfast.v1.Tier;
import java.util.SplittableRandom;
import org.junit.jupiter.api.Test;

/** The slots are those of the vectors: a 816, b 196, orders 138. */
class RoutesTest {
  /** Each group has one run of slots, in the order of the numbers. */
  private static GroupMap map(long epoch, int... counts) {
    GroupMap.Builder map = GroupMap.newBuilder().setEpoch(epoch);
    int first = 0;
    for (int at = 0; at < counts.length; at++) {
      SlotRun run = SlotRun.newBuilder().setFirst(first).setCount(counts[at]).build();
      String leader = "node-" + (at + 1) + "-" + epoch + ":1";
      map.addGroups(GroupRoute.newBuilder().setGroup(at + 1).setLeader(leader).addSlots(run));
      first += counts[at];
    }
    return map.build();
  }

  private static final Routes THREE = Routes.of(map(3, 190, 600, 3_306));

  private static Request acquire(String name, Tier tier) {
    AcquireRequest.Builder acquire = AcquireRequest.newBuilder().setName(name).setTier(tier);
    return Request.of(Operation.newBuilder().setAcquire(acquire).build());
  }

  private static Request acquire(String name) {
    return acquire(name, Tier.TIER_CORRECTNESS);
  }

  private static Request acquireAll(Tier tier, String... names) {
    AcquireAllRequest.Builder acquire = AcquireAllRequest.newBuilder().setTier(tier);
    for (String name : names) {
      acquire.addMembers(Member.newBuilder().setName(name));
    }
    return Request.of(Operation.newBuilder().setAcquireAll(acquire).build());
  }

  @Test
  void without_a_map_all_locks_are_in_the_root_group() {
    assertTrue(Routes.ONE_GROUP.isOneGroup());
    assertEquals(1, Routes.ONE_GROUP.groupOf(acquire("a")));
    assertEquals(1, Routes.ONE_GROUP.groupOf(acquireAll(Tier.TIER_CORRECTNESS, "a", "b")));
    assertEquals("", Routes.ONE_GROUP.leaderOf(1));
  }

  @Test
  void a_lock_is_in_the_group_that_owns_its_slot_and_names_with_one_tag_are_together() {
    assertEquals(3, THREE.groupOf(acquire("a")));
    assertEquals(2, THREE.groupOf(acquire("b")));
    assertEquals(1, THREE.groupOf(acquire("orders")));
    assertEquals(2, THREE.groupOf(Request.of(Operations.status("b"))));
    assertEquals(1, THREE.groupOf(acquireAll(Tier.TIER_CORRECTNESS, "{orders}/1", "l/{orders}")));
    assertEquals("node-3-3:1", THREE.leaderOf(3));
    assertEquals("", THREE.leaderOf(4));
  }

  @Test
  void the_efficiency_tier_is_in_the_root_group_whatever_the_name() {
    assertEquals(1, THREE.groupOf(acquire("a", Tier.TIER_EFFICIENCY)));
    assertEquals(1, THREE.groupOf(acquireAll(Tier.TIER_EFFICIENCY, "a", "b")));
  }

  @Test
  void locks_in_several_groups_are_refused_with_a_hint() {
    Request request = acquireAll(Tier.TIER_CORRECTNESS, "a", "a", "b");
    SeveralGroupsException several =
        assertThrows(SeveralGroupsException.class, () -> THREE.groupOf(request));
    assertEquals("several_groups", several.reason());
    assertFalse(several.mayHaveHappened() || several.isRetryable());
    for (String part : new String[] {"'a' and 'b'", "(3 and 2)", "{order}/a and {order}/b"}) {
      assertTrue(several.getMessage().contains(part), several.getMessage());
    }
  }

  @Test
  void a_map_that_does_not_give_each_slot_to_one_group_is_none() {
    assertNotNull(Routes.of(map(1, 4_096)));
    assertNull(Routes.of(map(1, 190, 600, 3_305)), "a slot is missing");
    assertNull(Routes.of(map(1, 190, 600, 3_307)), "beyond the slots");
    assertNull(Routes.of(map(1, 190, 0, 3_906)), "an empty run");
    assertNull(Routes.of(map(1, 190, -1, 3_907)), "a run of four billions");
    assertNull(Routes.of(GroupMap.getDefaultInstance()), "no groups");
    GroupMap.Builder twice = map(1, 190, 3_906).toBuilder();
    twice.getGroupsBuilder(1).addSlots(SlotRun.newBuilder().setFirst(5).setCount(1));
    assertNull(Routes.of(twice.build()), "a slot of two groups");
    for (int number : new int[] {0, 1, 65, -1}) {
      GroupMap.Builder other = map(1, 190, 3_906).toBuilder();
      other.getGroupsBuilder(1).setGroup(number);
      assertNull(Routes.of(other.build()), "group " + number);
    }
  }

  @Test
  void the_highest_epoch_counts_whatever_order_the_maps_come_in() {
    Routes older = Routes.of(map(2, 4_000, 96));
    Routes newer = Routes.of(map(-1, 2_000, 2_096));
    assertSame(older, Routes.ONE_GROUP.newerOf(older));
    assertSame(THREE, older.newerOf(THREE));
    assertSame(THREE, THREE.newerOf(older));
    assertSame(newer, THREE.newerOf(newer), "an epoch has no sign");
    assertSame(newer, newer.newerOf(THREE));
    assertTrue(THREE.isOlderThan(4) && !THREE.isOlderThan(3));
  }

  @Test
  void of_two_maps_with_one_epoch_the_later_counts_for_its_leaders_only() {
    Routes moved = Routes.of(map(3, 190, 600, 3_306));
    assertSame(moved, THREE.newerOf(moved));
    assertSame(THREE, THREE.newerOf(Routes.of(map(3, 191, 599, 3_306))));
  }

  private static Failure refusal(long epoch) {
    return Failure.newBuilder().setReason(Reason.REASON_WRONG_GROUP).setMapEpoch(epoch).build();
  }

  private static Redirects redirects() {
    return new Redirects(new SplittableRandom(1));
  }

  @Test
  void a_refused_request_goes_at_once_to_the_group_that_owns_the_lock() {
    assertEquals(0, redirects().next(refusal(3), 2, acquire("a"), THREE));
    Request several = acquireAll(Tier.TIER_CORRECTNESS, "a", "b");
    assertEquals(0, redirects().next(refusal(3), 2, several, THREE), "to be told there");
  }

  @Test
  void a_request_waits_for_a_newer_map_and_pauses_if_its_map_is_not_older() {
    long forMap = redirects().next(refusal(4), 3, acquire("a"), THREE);
    assertEquals(2_000 * Leases.MS, forMap);
    long pause = redirects().next(refusal(3), 3, acquire("a"), THREE);
    assertTrue(pause > 0 && pause <= 20 * Leases.MS, pause + " ns");
  }

  @Test
  void the_caller_gets_any_other_refusal_and_one_that_may_have_happened() {
    Request request = acquire("a");
    Failure other = refusal(3).toBuilder().setReason(Reason.REASON_FROZEN).build();
    Failure unsure = refusal(3).toBuilder().setMayHaveHappened(true).build();
    assertEquals(Redirects.NEVER, redirects().next(other, 2, request, THREE));
    assertEquals(Redirects.NEVER, redirects().next(unsure, 2, request, THREE));
    assertEquals(Redirects.NEVER, redirects().next(refusal(3), 1, request, Routes.ONE_GROUP));
  }

  @Test
  void groups_that_never_agree_refuse_the_request_in_the_end() {
    Redirects redirects = redirects();
    for (int count = 0; count < 8; count++) {
      assertEquals(0, redirects.next(refusal(3), 2, acquire("a"), THREE));
    }
    assertEquals(Redirects.NEVER, redirects.next(refusal(3), 2, acquire("a"), THREE));
  }
}
