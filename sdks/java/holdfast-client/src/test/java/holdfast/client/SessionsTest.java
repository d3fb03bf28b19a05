package holdfast.client;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import holdfast.client.errors.ClosedException;
import holdfast.client.errors.LossReason;
import holdfast.client.errors.RejectedException;
import holdfast.client.errors.SeveralGroupsException;
import holdfast.client.errors.TimedOutException;
import holdfast.client.errors.UnavailableException;
import holdfast.v1.AcquireRequest;
import holdfast.v1.Answer;
import holdfast.v1.CloseSessionResponse;
import holdfast.v1.EndReason;
import holdfast.v1.GroupMap;
import holdfast.v1.GroupRoute;
import holdfast.v1.Notice;
import holdfast.v1.OpenSessionResponse;
import holdfast.v1.Operation;
import holdfast.v1.Operation.KindCase;
import holdfast.v1.ReleaseOutcome;
import holdfast.v1.ReleaseResponse;
import holdfast.v1.ServerFrame;
import holdfast.v1.SessionEnded;
import holdfast.v1.SlotRun;
import java.io.IOException;
import java.time.Duration;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;

/**
 * A client of a cluster with two groups, seen from the nodes that lead them. The slot of {@code
 * orders} is 138, and that of {@code wallet} is 2814.
 */
class SessionsTest {
  private static final Duration LONG = Duration.ofSeconds(60);
  private static final int SLOTS = 4_096;

  private FakeNode rootNode;
  private FakeNode secondNode;
  private Client client;

  @BeforeEach
  void start() throws IOException {
    rootNode = new FakeNode();
    secondNode = new FakeNode();
    client =
        Client.builder(rootNode.address())
            .ttl(Duration.ofSeconds(30))
            .requestTimeout(Duration.ofSeconds(5))
            .build();
  }

  @AfterEach
  void stop() {
    rootNode.close();
    secondNode.close();
    // No node confirms it.
    CompletableFuture.runAsync(client::close);
  }

  private static GroupRoute route(int group, FakeNode leader, int first, int count) {
    SlotRun run = SlotRun.newBuilder().setFirst(first).setCount(count).build();
    return GroupRoute.newBuilder()
        .setGroup(group)
        .setLeader(leader.address())
        .addSlots(run)
        .build();
  }

  /** Group 2 owns the slots from here on. */
  private OpenSessionResponse welcome(long epoch, int secondFrom) {
    GroupMap.Builder map =
        GroupMap.newBuilder()
            .setEpoch(epoch)
            .addGroups(route(1, rootNode, 0, secondFrom))
            .addGroups(route(2, secondNode, secondFrom, SLOTS - secondFrom));
    return OpenSessionResponse.newBuilder()
        .setTtlMs(30_000)
        .setLingerMs(30_000)
        .setMap(map)
        .build();
  }

  /** The client's stream in the root group. */
  private FakeNode.Stream connect(int secondFrom) throws Exception {
    CompletableFuture<Client> opening = CompletableFuture.supplyAsync(client::open);
    FakeNode.Stream stream = rootNode.welcome(welcome(1, secondFrom));
    opening.get(10, TimeUnit.SECONDS);
    return stream;
  }

  private CompletableFuture<Guard> acquire(String name) {
    return CompletableFuture.supplyAsync(() -> client.lock(name).waitFor(LONG).acquire());
  }

  private static Guard got(CompletableFuture<Guard> acquiring) throws Exception {
    return acquiring.get(10, TimeUnit.SECONDS);
  }

  private Guard acquire(String name, FakeNode.Stream stream, long token) throws Exception {
    CompletableFuture<Guard> acquiring = acquire(name);
    stream.grant(stream.nextAcquire(name), token);
    return got(acquiring);
  }

  private static <E extends Throwable> E error(CompletableFuture<?> failing, Class<E> type) {
    ExecutionException failed =
        assertThrows(ExecutionException.class, () -> failing.get(20, TimeUnit.SECONDS));
    return assertInstanceOf(type, failed.getCause());
  }

  /** The guards of both locks, with the tokens 7 and 8, and the stream in group 2. */
  private record Held(Guard orders, Guard wallet, FakeNode.Stream second) {}

  private Held holdBoth(FakeNode.Stream root) throws Exception {
    Guard orders = acquire("orders", root, 7);
    CompletableFuture<Guard> acquiring = acquire("wallet");
    FakeNode.Stream second = secondNode.welcome(welcome(1, 2_000));
    second.grant(second.nextAcquire("wallet"), 8);
    return new Held(orders, got(acquiring), second);
  }

  private static void confirmClose(FakeNode.Stream stream) throws InterruptedException {
    Operation close = stream.next(KindCase.CLOSE);
    stream.answer(
        Answer.newBuilder()
            .setRequestId(close.getClose().getRequestId())
            .setClose(CloseSessionResponse.getDefaultInstance()));
  }

  @Test
  void a_client_has_a_session_with_one_id_in_each_group_whose_locks_it_uses() throws Exception {
    FakeNode.Stream root = connect(2_000);
    assertEquals(0, root.hello().getOpen().getGroup());
    assertFalse(secondNode.hasVisitor());
    Held held = holdBoth(root);
    assertEquals(2, held.second.hello().getOpen().getGroup());
    assertEquals(
        root.hello().getOpen().getSessionId(), held.second.hello().getOpen().getSessionId());
    assertEquals(7, held.orders.token());
    assertEquals(8, held.wallet.token());

    // Each guard is released in the session that has the hold.
    CompletableFuture<Released> releasing = CompletableFuture.supplyAsync(held.wallet::release);
    Operation release = held.second.next(KindCase.RELEASE);
    assertEquals(8, release.getRelease().getToken());
    held.second.answer(
        Answer.newBuilder()
            .setRequestId(release.getRelease().getRequestId())
            .setRelease(
                ReleaseResponse.newBuilder().setOutcome(ReleaseOutcome.RELEASE_OUTCOME_RELEASED)));
    assertEquals(Released.RELEASED, releasing.get(10, TimeUnit.SECONDS));

    // To close the client ends all sessions, at the same time.
    CompletableFuture<Void> closing = CompletableFuture.runAsync(client::close);
    confirmClose(held.second);
    confirmClose(root);
    closing.get(10, TimeUnit.SECONDS);
    assertEquals(LossReason.SESSION_CLOSED, held.orders.awaitLost(LONG).orElseThrow());
    assertThrows(ClosedException.class, () -> client.lock("orders").acquire());
    assertThrows(ClosedException.class, () -> client.lock("wallet").acquire());
  }

  @Test
  void a_closed_client_opens_no_session_in_another_group() throws Exception {
    FakeNode.Stream root = connect(2_000);
    CompletableFuture<Void> closing = CompletableFuture.runAsync(client::close);
    confirmClose(root);
    closing.get(10, TimeUnit.SECONDS);
    assertThrows(ClosedException.class, () -> client.lock("wallet").acquire());
    assertFalse(secondNode.hasVisitor());
  }

  @Test
  void a_close_that_one_group_does_not_confirm_fails() throws Exception {
    FakeNode.Stream root = connect(2_000);
    holdBoth(root);
    CompletableFuture<Void> closing = CompletableFuture.runAsync(client::close);
    confirmClose(root);
    assertTrue(error(closing, UnavailableException.class).mayHaveHappened());
  }

  @Test
  void the_end_of_a_session_in_one_group_leaves_the_locks_of_others_alone() throws Exception {
    FakeNode.Stream root = connect(2_000);
    Held held = holdBoth(root);
    SessionEnded.Builder ended = SessionEnded.newBuilder().setReason(EndReason.END_REASON_KILLED);
    held.second.send(
        ServerFrame.newBuilder().addNotices(Notice.newBuilder().setSessionEnded(ended)).build());
    assertEquals(LossReason.SESSION_KILLED, held.wallet.awaitLost(LONG).orElseThrow());
    assertEquals(7, held.orders.token());

    // The next lock of that group is asked for in a new session there. Any node serves it.
    CompletableFuture<Guard> acquiring = acquire("wallet");
    FakeNode.Stream second = rootNode.welcome(welcome(1, 2_000));
    assertEquals(2, second.hello().getOpen().getGroup());
    assertNotEquals(root.hello().getOpen().getSessionId(), second.hello().getOpen().getSessionId());
    second.grant(second.nextAcquire("wallet"), 9);
    assertEquals(9, got(acquiring).token());
    assertEquals(7, held.orders.token());
  }

  @Test
  void a_refusal_by_a_newer_map_is_followed_to_the_group_that_owns_the_lock() throws Exception {
    // By this map `wallet` is in the root group.
    FakeNode.Stream root = connect(3_000);
    CompletableFuture<Guard> acquiring = acquire("wallet");
    followRefusal(root);
    assertEquals(8, got(acquiring).token());
  }

  @Test
  void a_refusal_of_a_request_without_a_thread_is_followed_too() throws Exception {
    FakeNode.Stream root = connect(3_000);
    CompletableFuture<Guard> acquiring = client.lock("wallet").waitFor(LONG).acquireAsync();
    followRefusal(root);
    assertEquals(8, got(acquiring).token());
  }

  private void followRefusal(FakeNode.Stream root) throws Exception {
    root.refuse(root.nextAcquire("wallet").getRequestId(), 2);
    // The newer map comes with a fresh welcome; the old stream ends with a farewell.
    FakeNode.Stream fresh = rootNode.welcome(welcome(2, 2_000));
    assertEquals(KindCase.RESUME, fresh.hello().getKindCase());
    assertEquals(0, root.nextFrame().getOperationsCount());
    FakeNode.Stream second = secondNode.welcome(welcome(2, 2_000));
    AcquireRequest again = second.nextAcquire("wallet");
    assertTrue(again.getWaitMs() > 50_000 && again.getWaitMs() <= 60_000, again.toString());
    second.grant(again, 8);
    // What was refused is not asked for again in the root group.
    acquire("orders", fresh, 7);
  }

  @Test
  void groups_that_never_agree_refuse_the_request_to_its_caller() throws Exception {
    FakeNode.Stream root = connect(2_000);
    CompletableFuture<Guard> acquiring = acquire("orders");
    for (int tries = 0; tries < 9; tries++) {
      root.refuse(root.nextAcquire("orders").getRequestId(), 1);
    }
    RejectedException refused = error(acquiring, RejectedException.class);
    assertEquals("wrong_group", refused.reason());
    assertTrue(refused.isRetryable() && !refused.mayHaveHappened());
  }

  @Test
  void a_request_that_is_cancelled_while_it_waits_for_a_map_is_not_sent_again() throws Exception {
    FakeNode.Stream root = connect(3_000);
    CompletableFuture<Guard> acquiring = client.lock("wallet").waitFor(LONG).acquireAsync();
    root.refuse(root.nextAcquire("wallet").getRequestId(), 2);
    // The client has read the refusal, and asks for a newer map.
    FakeNode.Stream fresh = rootNode.nextStream();
    CompletableFuture<Guard> other = client.lock("{wallet}/other").waitFor(LONG).acquireAsync();
    acquiring.cancel(false);
    // With this map, both requests would go to group 2.
    fresh.welcome(welcome(2, 2_000));
    fresh.refuse(fresh.nextAcquire("{wallet}/other").getRequestId(), 2);
    FakeNode.Stream second = secondNode.welcome(welcome(2, 2_000));
    second.grant(second.nextAcquire("{wallet}/other"), 8);
    assertEquals(8, got(other).token());
  }

  @Test
  void the_wait_of_a_request_counts_over_all_groups() throws Exception {
    FakeNode.Stream root = connect(3_000);
    CompletableFuture<Guard> acquiring =
        CompletableFuture.supplyAsync(
            () -> client.lock("wallet").waitFor(Duration.ofMillis(500)).acquire());
    root.refuse(root.nextAcquire("wallet").getRequestId(), 2);
    rootNode.welcome(welcome(1, 3_000));
    error(acquiring, TimedOutException.class);
  }

  @Test
  void locks_in_several_groups_are_refused_before_the_request_is_sent() throws Exception {
    FakeNode.Stream root = connect(2_000);
    SeveralGroupsException refused =
        assertThrows(
            SeveralGroupsException.class, () -> client.lockAll("orders", "wallet").acquire());
    assertTrue(refused.getMessage().contains("{order}/orders and {order}/wallet"));
    error(client.lockAll("orders", "wallet").acquireAsync(), SeveralGroupsException.class);
    // Nothing of it is on the stream.
    acquire("orders", root, 7);
    assertFalse(secondNode.hasVisitor());
  }

  @Test
  void the_efficiency_tier_stays_in_the_root_group() throws Exception {
    FakeNode.Stream root = connect(2_000);
    CompletableFuture<Guard> acquiring =
        client.lock("wallet").tier(Tier.EFFICIENCY).waitFor(LONG).acquireAsync();
    root.grant(root.nextAcquire("wallet"), 8);
    assertEquals(8, got(acquiring).token());
    assertFalse(secondNode.hasVisitor());
  }

  @Test
  void a_read_of_a_lock_in_another_group_opens_no_session() throws Exception {
    connect(2_000);
    assertEquals("wallet", client.status("wallet").name());
    assertFalse(secondNode.hasVisitor() || rootNode.hasVisitor());
  }

  @Test
  void a_group_that_nobody_serves_fails_its_own_requests_only() throws Exception {
    FakeNode.Stream root = connect(2_000);
    Held held = holdBoth(root);
    assertTrue(client.isServed());
    // The other node takes the connections of this group, and answers none.
    secondNode.close();
    while (client.isServed()) {
      TimeUnit.MILLISECONDS.sleep(20);
    }
    assertThrows(UnavailableException.class, () -> client.lock("wallet").acquire());
    acquire("{orders}/1", root, 9);
    assertEquals(7, held.orders.token());
  }

  @Test
  void a_client_that_knows_no_map_opens_the_session_in_the_root_group_before_it_asks()
      throws Exception {
    for (boolean isAsync : new boolean[] {false, true}) {
      Client fresh = Client.builder(rootNode.address()).ttl(Duration.ofSeconds(30)).build();
      LockRequest lock = fresh.lock("wallet").waitFor(LONG);
      CompletableFuture<Guard> acquiring =
          isAsync ? lock.acquireAsync() : CompletableFuture.supplyAsync(lock::acquire);
      FakeNode.Stream root = rootNode.welcome(welcome(1, 2_000));
      FakeNode.Stream second = secondNode.welcome(welcome(1, 2_000));
      AcquireRequest asked = second.nextAcquire("wallet");
      assertEquals(LONG.toMillis(), asked.getWaitMs());
      second.grant(asked, 8);
      assertEquals(8, got(acquiring).token());
      CompletableFuture<Void> closing = CompletableFuture.runAsync(fresh::close);
      // The root group was asked for nothing else.
      confirmClose(root);
      confirmClose(second);
      closing.get(10, TimeUnit.SECONDS);
    }
  }

  @Test
  void a_closed_client_reads_nothing_also_in_a_group_without_a_session() throws Exception {
    FakeNode.Stream root = connect(2_000);
    CompletableFuture<Void> closing = CompletableFuture.runAsync(client::close);
    confirmClose(root);
    closing.get(10, TimeUnit.SECONDS);
    assertThrows(ClosedException.class, () -> client.status("wallet"));
  }
}
