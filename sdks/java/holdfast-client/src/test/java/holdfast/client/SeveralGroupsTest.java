package holdfast.client;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import holdfast.client.core.Slots;
import holdfast.client.errors.BusyException;
import holdfast.client.errors.LossReason;
import holdfast.client.errors.SeveralGroupsException;
import java.io.IOException;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;

/** The library against a real cluster of three nodes with four groups. */
class SeveralGroupsTest {
  private static final Duration LONG = Duration.ofSeconds(20);
  private static final int NODES = 3;
  private static final int GROUPS = 4;

  private static TestNode cluster;
  private Client client;

  @BeforeAll
  static void startCluster() throws IOException {
    cluster = new TestNode(NODES, GROUPS);
  }

  @AfterAll
  static void stopCluster() {
    if (cluster != null) {
      cluster.close();
    }
  }

  @BeforeEach
  void connect() {
    client = Client.connect(cluster.endpoint());
  }

  @AfterEach
  void close() {
    client.close();
  }

  /** A name in each group. The groups of a new cluster have equal shares, in their order. */
  private static Map<Integer, String> namesOf(String prefix) {
    Map<Integer, String> names = new TreeMap<>();
    for (int number = 0; names.size() < GROUPS; number++) {
      String name = prefix + "/" + number;
      names.putIfAbsent(1 + Slots.of(name) * GROUPS / Slots.COUNT, name);
    }
    return names;
  }

  private Map<Integer, Guard> acquireIn(Map<Integer, String> names) {
    Map<Integer, Guard> guards = new TreeMap<>();
    names.forEach((group, name) -> guards.put(group, client.lock(name).waitFor(LONG).acquire()));
    return guards;
  }

  @Test
  void locks_of_all_groups_are_held_at_once_by_one_client() throws IOException {
    Map<Integer, String> names = namesOf("all");
    try (Client other = Client.connect(cluster.endpoint())) {
      Map<Integer, Guard> guards = acquireIn(names);
      List<String> sessions = new ArrayList<>();
      for (int group : names.keySet()) {
        String name = names.get(group);
        String status = cluster.command("status", name, "--output", "json");
        assertTrue(status.replace(" ", "").contains("\"group\":" + group), status);
        assertThrows(BusyException.class, () -> other.lock(name).acquire());
        sessions.add(client.status(name).holders().get(0).session());
      }
      assertEquals(1, sessions.stream().distinct().count(), sessions.toString());
      for (int group : names.keySet()) {
        Guard guard = guards.get(group);
        long token = guard.token();
        guard.convertToShared();
        guard.proclaim("group " + group);
        assertEquals("group " + group, client.status(guard.name()).holders().get(0).metadataText());
        assertEquals(Released.RELEASED, guard.release());
        try (Guard later = other.lock(guard.name()).waitFor(LONG).acquire()) {
          assertTrue(later.token() > token);
        }
      }
    }
  }

  @Test
  void closing_a_client_frees_its_locks_in_all_groups() {
    Map<Integer, String> names = namesOf("closed");
    Client closed = Client.connect(cluster.endpoint());
    names.values().forEach(name -> closed.lock(name).acquire());
    closed.close();
    names.values().forEach(name -> client.lock(name).acquire().close());
  }

  @Test
  void locks_with_one_tag_are_taken_together_and_others_are_refused() {
    List<String> names = List.copyOf(namesOf("several").values());
    SeveralGroupsException refused =
        assertThrows(SeveralGroupsException.class, () -> client.lockAll(names).acquire());
    assertEquals("several_groups", refused.reason());
    for (String tag : names) {
      try (GuardAll all = client.lockAll("{" + tag + "}/1", "{" + tag + "}/2").acquire()) {
        assertEquals(2, all.tokens().size());
      }
    }
    // Of a client that knows no map yet, the cluster refuses it.
    try (Client late = Client.builder(cluster.endpoint()).build()) {
      assertThrows(SeveralGroupsException.class, () -> late.lockAll(names).acquire());
    }
  }

  @Test
  void a_client_that_knows_no_map_yet_gets_a_lock_in_each_group() {
    for (String name : namesOf("late").values()) {
      try (Client late = Client.builder(cluster.endpoint()).build();
          Guard guard = late.lock(name).waitFor(LONG).acquire()) {
        assertTrue(guard.isHeld());
      }
    }
  }

  @Test
  void a_lock_that_an_operator_breaks_in_one_group_is_lost_alone() throws Exception {
    Map<Integer, Guard> guards = acquireIn(namesOf("broken"));
    cluster.breakLock(guards.get(3).name());
    assertEquals(LossReason.BROKEN, guards.remove(3).awaitLost(LONG).orElseThrow());
    guards.values().forEach(Guard::close);
  }

  @Test
  void holds_and_waits_outlive_transfers_of_the_leadership_of_their_group() throws Exception {
    Map<Integer, String> names = namesOf("moved");
    Map<Integer, Guard> guards = acquireIn(names);
    try (Client other = Client.connect(cluster.endpoint())) {
      for (int group : names.keySet()) {
        var waiting = other.lock(names.get(group)).waitFor(LONG).acquireAsync();
        while (client.status(names.get(group)).waiterCount() == 0) {
          Thread.sleep(10);
        }
        for (int node = 1; node <= NODES; node++) {
          cluster.command(
              "cluster",
              "transfer",
              "--group",
              String.valueOf(group),
              "--to",
              String.valueOf(node));
          for (Guard guard : guards.values()) {
            guard.check();
          }
          String tag = "{" + names.get(group) + "}/" + node;
          client.lock(tag).waitFor(LONG).acquire().close();
        }
        long token = guards.get(group).token();
        guards.remove(group).close();
        try (Guard next = waiting.get()) {
          assertTrue(next.token() > token);
        }
      }
    }
  }

  @Test
  void a_watch_tells_the_events_of_all_groups_and_those_of_one_lock_in_order() {
    Map<Integer, String> names = namesOf("watched");
    try (Watch watch = client.watch("watched/")) {
      assertEquals(WatchEvent.Kind.SNAPSHOT_COMPLETE, watch.next().kind());
      Map<String, List<WatchEvent.Kind>> told = new HashMap<>();
      for (String name : names.values()) {
        client.lock(name).acquire().close();
        told.put(name, new ArrayList<>());
      }
      while (told.values().stream().anyMatch(kinds -> kinds.size() < 2)) {
        WatchEvent event = watch.next();
        told.get(event.name()).add(event.kind());
      }
      List<WatchEvent.Kind> both = List.of(WatchEvent.Kind.GRANTED, WatchEvent.Kind.RELEASED);
      names.values().forEach(name -> assertEquals(both, told.get(name)));
    }
  }

  @Test
  void an_election_and_a_lock_of_the_efficiency_tier_work_whatever_their_group() {
    for (String name : namesOf("tier").values()) {
      try (Leadership leadership = client.election(name).lead("worker-7", LONG)) {
        assertEquals("worker-7", client.election(name).leader().orElseThrow());
        assertTrue(leadership.isHeld());
      }
      try (Guard guard = client.lock(name).tier(Tier.EFFICIENCY).waitFor(LONG).acquire()) {
        assertTrue(guard.isBestEffort());
      }
    }
  }
}
