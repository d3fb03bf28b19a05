package holdfast.client.core;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import holdfast.v1.AcquireRequest;
import holdfast.v1.Answer;
import holdfast.v1.ClientFrame;
import holdfast.v1.Failure;
import holdfast.v1.GroupMap;
import holdfast.v1.GroupRoute;
import holdfast.v1.OpenSessionRequest;
import holdfast.v1.OpenSessionResponse;
import holdfast.v1.Operation;
import holdfast.v1.Operation.KindCase;
import holdfast.v1.Reason;
import holdfast.v1.ServerFrame;
import holdfast.v1.SlotRun;
import java.util.ArrayList;
import java.util.List;
import java.util.SplittableRandom;
import org.junit.jupiter.api.Test;

/** A session in one of several groups, without I/O. */
class SessionGroupTest {
  private static final long MS = Leases.MS;
  private static final long FOR_EVER = Long.MAX_VALUE / 2;
  private static final int GROUP = 3;

  private final List<String> connects = new ArrayList<>();
  private final List<Routes> learned = new ArrayList<>();
  private final List<Outcome> outcomes = new ArrayList<>();
  private long now = 1_000 * MS;
  private Session session = newSession(GROUP);

  private Session newSession(int group) {
    OpenSessionRequest settings =
        OpenSessionRequest.newBuilder().setTtlMs(30_000).setGroup(group).build();
    State state = new State(Session.spanOf(settings), new SplittableRandom(1));
    return new Session(new Endpoints("a:1,b:2", true), settings, () -> "id", state, now);
  }

  private static GroupMap map(long epoch) {
    GroupRoute.Builder all = GroupRoute.newBuilder().setGroup(GROUP);
    all.addSlots(SlotRun.newBuilder().setCount(Slots.COUNT));
    return GroupMap.newBuilder().setEpoch(epoch).addGroups(all).build();
  }

  private void pump() {
    for (Output output = session.nextOutput(); output != null; output = session.nextOutput()) {
      if (output instanceof Output.Connect connect) {
        connects.add(connect.address());
      } else if (output instanceof Output.RoutesLearned it) {
        learned.add(it.routes());
      } else if (output instanceof Output.Completed completed) {
        outcomes.add(completed.outcome());
      }
    }
  }

  /** The node takes the connection and welcomes the session. Returns the hello. */
  private Operation connected(GroupMap map) {
    pump();
    assertTrue(session.handleConnected(now));
    Operation hello = session.nextFrame(now).getOperations(0);
    OpenSessionResponse.Builder welcome = OpenSessionResponse.newBuilder();
    welcome.setTtlMs(30_000).setLingerMs(30_000).setLogicalTimeMs(now / MS);
    if (map != null) {
      welcome.setMap(map);
    }
    boolean isOpen = hello.getKindCase() == KindCase.OPEN;
    told(
        isOpen
            ? Answer.newBuilder().setRequestId(hello.getOpen().getRequestId()).setOpen(welcome)
            : Answer.newBuilder()
                .setRequestId(hello.getResume().getRequestId())
                .setResume(welcome));
    return hello;
  }

  private void told(Answer.Builder answer) {
    session.handleFrame(now, ServerFrame.newBuilder().addAnswers(answer).build());
    pump();
  }

  private long ask(String name) {
    AcquireRequest.Builder acquire = AcquireRequest.newBuilder().setName(name);
    Operation operation = Operation.newBuilder().setAcquire(acquire).build();
    return session.handleRequest(now, Request.of(operation).calledBy(name, FOR_EVER));
  }

  private void refuse(long id, long epoch) {
    Failure.Builder failure =
        Failure.newBuilder().setReason(Reason.REASON_WRONG_GROUP).setMapEpoch(epoch);
    told(Answer.newBuilder().setRequestId(id).setFailure(failure));
  }

  private void later(long ms) {
    now += ms * MS;
    session.handleTimeout(now);
    pump();
  }

  @Test
  void each_hello_names_the_group() {
    ask("a");
    assertEquals(GROUP, connected(map(1)).getOpen().getGroup());
    session.handleDisconnected(now, Failures.retryable("broken"), false);
    later(500);
    assertEquals(GROUP, connected(map(1)).getResume().getGroup());
  }

  @Test
  void a_session_in_the_root_group_of_a_cluster_sends_what_it_sent_before_there_were_groups() {
    session = newSession(0);
    ask("a");
    Operation open = connected(null);
    assertEquals(open.getOpen().toBuilder().clearGroup().build(), open.getOpen());
    session.handleDisconnected(now, Failures.retryable("broken"), false);
    later(500);
    Operation resume = connected(null);
    assertEquals(resume.getResume().toBuilder().clearGroup().build(), resume.getResume());
    assertTrue(learned.isEmpty());
  }

  @Test
  void a_refusal_by_a_newer_map_fetches_it_with_a_hello_to_the_same_node() {
    long id = ask("a");
    connected(map(1));
    session.nextFrame(now);
    connects.clear();
    refuse(id, 2);
    assertEquals(Reason.REASON_WRONG_GROUP, outcomes.get(0).refusal().getReason());
    later(0);
    assertEquals(List.of("a:1"), connects);
    // The present stream serves until the connection exists.
    ask("b");
    ClientFrame frame = session.nextFrame(now);
    assertEquals("b", frame.getOperations(0).getAcquire().getName());
    assertEquals(KindCase.RESUME, connected(map(2)).getKindCase());
    assertFalse(learned.get(learned.size() - 1).isOlderThan(2));
    assertEquals("b", session.nextFrame(now).getOperations(0).getAcquire().getName());
  }

  @Test
  void a_newer_map_is_fetched_at_most_once_a_second() {
    ask("a");
    connected(map(1));
    connects.clear();
    long from = now;
    List<Long> fetches = new ArrayList<>();
    while (now - from < 3_500 * MS) {
      long id = ask("b");
      session.nextFrame(now);
      refuse(id, 2);
      later(10);
      if (!connects.isEmpty()) {
        connects.clear();
        fetches.add((now - from) / MS);
        // The node does not know the newer map yet.
        connected(map(1));
        session.nextFrame(now);
      }
    }
    assertEquals(List.of(10L, 1_000L, 2_000L, 3_000L), fetches);
  }

  @Test
  void a_refusal_fetches_nothing_if_the_map_is_not_older_or_there_is_none() {
    long id = ask("a");
    connected(map(2));
    session.nextFrame(now);
    connects.clear();
    refuse(id, 2);
    later(1_500);
    assertTrue(connects.isEmpty());

    session = newSession(0);
    id = ask("a");
    connected(null);
    session.nextFrame(now);
    connects.clear();
    refuse(id, 2);
    later(1_500);
    assertTrue(connects.isEmpty());
  }

  @Test
  void a_map_that_is_none_is_ignored() {
    ask("a");
    GroupMap.Builder incomplete = map(5).toBuilder();
    incomplete.getGroupsBuilder(0).getSlotsBuilder(0).setCount(Slots.COUNT - 1);
    connected(incomplete.build());
    assertTrue(learned.isEmpty());
  }

  @Test
  void the_leader_of_another_group_is_ignored() {
    for (int group : new int[] {0, GROUP, 1}) {
      session = newSession(GROUP);
      long id = ask("a");
      connected(map(1));
      session.nextFrame(now);
      connects.clear();
      Failure.Builder failure =
          Failure.newBuilder()
              .setReason(Reason.REASON_NOT_LEADER)
              .setRetryable(true)
              .setGroup(group)
              .setLeader("c:3");
      told(Answer.newBuilder().setRequestId(id).setFailure(failure));
      later(500);
      assertEquals(List.of(group == 1 ? "b:2" : "c:3"), connects, "of group " + group);
    }
  }

  @Test
  void a_caller_that_was_not_taken_in_cannot_abandon_what_the_session_asks_for_itself() {
    long id = ask("a");
    connected(map(1));
    session.nextFrame(now);
    session.handleAbandoned(now, id);
    session.handleAbandoned(now, 0);
    Operation cancel = session.nextFrame(now).getOperations(0);
    assertEquals(id, cancel.getCancel().getTarget());
    assertNull(session.nextFrame(now));
  }
}
