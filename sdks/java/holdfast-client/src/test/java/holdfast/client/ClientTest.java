package holdfast.client;

import static org.junit.jupiter.api.Assertions.assertDoesNotThrow;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import holdfast.client.errors.BusyException;
import holdfast.client.errors.CancelledException;
import holdfast.client.errors.ClosedException;
import holdfast.client.errors.LossReason;
import holdfast.client.errors.LostException;
import holdfast.client.errors.RejectedException;
import holdfast.client.errors.TimedOutException;
import holdfast.client.errors.UnavailableException;
import java.io.IOException;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.function.Supplier;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;

/** The library against a real node. */
class ClientTest {
  private static final Duration LONG = Duration.ofSeconds(20);

  private static TestNode node;
  private Client client;

  @BeforeAll
  static void startNode() throws IOException {
    node = new TestNode();
  }

  @AfterAll
  static void stopNode() {
    if (node != null) {
      node.close();
    }
  }

  @BeforeEach
  void connect() {
    client = Client.builder(node.endpoint()).application("junit").build();
  }

  @AfterEach
  void close() {
    client.close();
  }

  @Test
  void a_lock_is_held_within_its_block_and_free_behind_it() {
    try (Client other = Client.connect(node.endpoint())) {
      long token;
      Guard left;
      try (Guard guard = client.lock("order:42").waitFor(LONG).acquire()) {
        left = guard;
        token = guard.token();
        assertTrue(guard.isHeld() && guard.isExclusive() && !guard.isAtRisk());
        assertEquals("order:42", guard.name());
        assertTrue(guard.fence().startsWith("hf1.L.") && guard.fence().endsWith("." + token));
        assertTrue(guard.validFor().compareTo(Duration.ofSeconds(25)) > 0);
        assertThrows(BusyException.class, () -> other.lock("order:42").acquire());
      }
      LostException lost = assertThrows(LostException.class, left::token);
      assertEquals(LossReason.RELEASED, lost.reason());
      try (Guard later = other.lock("order:42").acquire()) {
        assertTrue(later.token() > token);
      }
    }
  }

  @Test
  void threads_of_one_client_exclude_each_other() throws InterruptedException {
    AtomicInteger inside = new AtomicInteger();
    AtomicInteger most = new AtomicInteger();
    List<Thread> threads = new ArrayList<>();
    for (int number = 0; number < 4; number++) {
      Runnable work =
          () -> {
            for (int round = 0; round < 10; round++) {
              try (Guard guard = client.lock("threads").waitFor(LONG).acquire()) {
                most.accumulateAndGet(inside.incrementAndGet(), Math::max);
                inside.decrementAndGet();
                guard.check();
              }
            }
          };
      threads.add(new Thread(work));
    }
    threads.forEach(Thread::start);
    for (Thread thread : threads) {
      thread.join();
    }
    assertEquals(1, most.get());
  }

  @Test
  void leaving_a_block_after_a_loss_throws_lost_and_keeps_the_error_of_the_body() {
    LostException lost =
        assertThrows(
            LostException.class,
            () -> {
              try (Guard guard = client.lock("broken").acquire()) {
                node.breakLock("broken");
                assertEquals(LossReason.BROKEN, guard.awaitLost(LONG).orElseThrow());
              }
            });
    assertEquals(LossReason.BROKEN, lost.reason());
    IllegalStateException own =
        assertThrows(
            IllegalStateException.class,
            () -> {
              try (Guard guard = client.lock("broken").waitFor(LONG).acquire()) {
                node.breakLock("broken");
                guard.awaitLost(LONG);
                throw new IllegalStateException("of the body");
              }
            });
    assertInstanceOf(LostException.class, own.getSuppressed()[0]);
  }

  @Test
  void a_loss_is_told_to_callbacks_and_interrupts_who_asked_for_it() throws Exception {
    BlockingQueue<LossReason> told = new LinkedBlockingQueue<>();
    CountDownLatch held = new CountDownLatch(1);
    CompletableFuture<Boolean> wasInterrupted = new CompletableFuture<>();
    Thread holder =
        new Thread(
            () -> {
              Guard guard = client.lock("interrupt").interruptOnLoss().acquire();
              guard.onLost(told::add);
              held.countDown();
              try {
                Thread.sleep(LONG.toMillis());
                wasInterrupted.complete(false);
              } catch (InterruptedException interrupted) {
                wasInterrupted.complete(true);
              }
              assertThrows(LostException.class, guard::close);
            });
    holder.start();
    held.await();
    node.breakLock("interrupt");
    assertTrue(wasInterrupted.get(20, TimeUnit.SECONDS));
    assertEquals(LossReason.BROKEN, told.poll(20, TimeUnit.SECONDS));
    holder.join();
  }

  @Test
  void an_interrupt_that_the_body_did_not_notice_is_taken_back_at_the_end() throws Exception {
    Guard guard = client.lock("interrupt-late").interruptOnLoss().acquire();
    Thread operator = new Thread(() -> assertDoesNotThrow(() -> node.breakLock("interrupt-late")));
    operator.start();
    while (!Thread.currentThread().isInterrupted()) {
      Thread.onSpinWait();
    }
    assertThrows(LostException.class, guard::close);
    assertFalse(Thread.interrupted());
    operator.join();
  }

  @Test
  void an_interrupted_wait_leaves_no_waiter_behind() throws Exception {
    try (Client other = Client.connect(node.endpoint())) {
      Guard held = other.lock("queue").acquire();
      CountDownLatch queued = new CountDownLatch(1);
      CompletableFuture<Throwable> outcome = new CompletableFuture<>();
      Thread waiter =
          new Thread(
              () -> {
                try {
                  client.lock("queue").waitFor(LONG).onQueued(at -> queued.countDown()).acquire();
                  outcome.complete(null);
                } catch (CancelledException cancelled) {
                  outcome.complete(Thread.interrupted() ? cancelled : null);
                }
              });
      waiter.start();
      queued.await();
      assertEquals(1, other.status("queue").waiterCount());
      waiter.interrupt();
      assertInstanceOf(CancelledException.class, outcome.get(20, TimeUnit.SECONDS));
      while (other.status("queue").waiterCount() > 0) {
        Thread.onSpinWait();
      }
      assertEquals(Released.RELEASED, held.release());
    }
  }

  @Test
  void a_cancelled_future_leaves_no_waiter_behind() throws Exception {
    try (Client other = Client.connect(node.endpoint())) {
      Guard held = other.lock("future").acquire();
      CountDownLatch queued = new CountDownLatch(1);
      CompletableFuture<Guard> waiting =
          client.lock("future").waitFor(LONG).onQueued(at -> queued.countDown()).acquireAsync();
      queued.await();
      waiting.cancel(true);
      while (other.status("future").waiterCount() > 0) {
        Thread.onSpinWait();
      }
      CompletableFuture<Guard> next = client.lock("future").waitFor(LONG).acquireAsync();
      held.release();
      next.get(20, TimeUnit.SECONDS).close();
    }
  }

  @Test
  void the_view_as_a_lock_is_reentrant_and_belongs_to_its_thread() throws Exception {
    HoldfastLock lock = client.asLock("view");
    lock.lock();
    assertTrue(client.asLock("view").tryLock());
    lock.unlock();
    assertTrue(lock.guard().orElseThrow().isHeld());
    CompletableFuture<Boolean> other = new CompletableFuture<>();
    new Thread(() -> other.complete(lock.tryLock())).start();
    assertFalse(other.get(20, TimeUnit.SECONDS));
    lock.unlock();
    assertThrows(IllegalMonitorStateException.class, lock::unlock);
    assertTrue(lock.tryLock(1, TimeUnit.SECONDS));
    lock.unlock();
    Thread.currentThread().interrupt();
    assertThrows(InterruptedException.class, lock::lockInterruptibly);
  }

  @Test
  void readers_share_and_permits_are_counted() {
    try (Guard one = client.lock("shared").shared().acquire();
        Guard two = client.lock("shared").shared().acquire()) {
      assertEquals(one.token(), two.token());
      assertEquals(Mode.SHARED, two.mode());
      assertTrue(client.lock("shared").tryAcquire().isEmpty());
    }
    try (Guard one = client.lock("gpu").permits(1).acquire()) {
      assertEquals("", one.fence());
      assertTrue(client.lock("gpu").permits(1).tryAcquire().isEmpty());
    }
  }

  @Test
  void several_locks_are_taken_at_once_or_not_at_all() {
    try (GuardAll both = client.lockAll("all/b", "all/a").acquire()) {
      assertEquals(List.of("all/b", "all/a"), both.names());
      assertEquals(both.tokens().get(1), both.token("all/a"));
      assertThrows(BusyException.class, () -> client.lockAll("all/c", "all/a").actor(0).acquire());
      client.lock("all/c").acquire().close();
    }
  }

  @Test
  void a_hold_with_its_own_ttl_is_renewed_unless_the_program_wants_to() throws Exception {
    Duration ttl = Duration.ofMillis(600);
    try (Guard renewed = client.lock("renewed").ttl(ttl).acquire()) {
      Guard ending = client.lock("ending").ttl(ttl).autoRenew(false).acquire();
      LossReason reason = ending.awaitLost(LONG).orElseThrow();
      assertTrue(reason == LossReason.OWN_TIME_OVER || reason == LossReason.HOLD_TTL);
      Thread.sleep(ttl.toMillis());
      renewed.token();
    }
  }

  @Test
  void a_leader_is_elected_and_observed() {
    Election election = client.election("scheduler");
    try (Observation observation = election.observe()) {
      assertInstanceOf(Observation.Change.Vacant.class, observation.next());
      try (Leadership leadership = election.lead("worker-7")) {
        Observation.Change.Led led =
            assertInstanceOf(Observation.Change.Led.class, observation.next());
        assertEquals(leadership.epoch(), led.epoch());
        assertEquals("worker-7", led.value());
        assertEquals("worker-7", election.leader().orElseThrow());
        leadership.proclaim("worker-8");
        led = assertInstanceOf(Observation.Change.Led.class, observation.next());
        assertEquals("worker-8", led.value());
      }
      assertInstanceOf(Observation.Change.Vacant.class, observation.next());
    }
  }

  @Test
  void a_watch_tells_what_is_and_what_happens_and_ends_when_it_is_closed() throws Exception {
    try (Guard held = client.lock("watched/a").acquire()) {
      Watch watch = client.watch("watched/");
      WatchEvent present = watch.next();
      assertEquals(WatchEvent.Kind.PRESENT, present.kind());
      assertEquals(held.token(), present.token());
      assertEquals(WatchEvent.Kind.SNAPSHOT_COMPLETE, watch.next().kind());
      held.release();
      WatchEvent released = watch.next();
      assertEquals(WatchEvent.Kind.RELEASED, released.kind());
      assertEquals("watched/a", released.name());
      CompletableFuture<Integer> rest = new CompletableFuture<>();
      new Thread(
              () -> {
                int count = 0;
                for (WatchEvent ignored : watch) {
                  count++;
                }
                rest.complete(count);
              })
          .start();
      watch.close();
      assertEquals(0, rest.get(20, TimeUnit.SECONDS));
    }
  }

  @Test
  void a_lock_of_the_efficiency_tier_says_so() {
    try (Guard guard = client.lock("fast").tier(Tier.EFFICIENCY).acquire()) {
      assertTrue(guard.fence().startsWith("hf1.B."), guard.fence());
    }
  }

  @Test
  void a_traceparent_is_asked_for_at_each_request_in_its_thread() {
    List<Thread> asked = new ArrayList<>();
    Supplier<String> traceparent =
        () -> {
          asked.add(Thread.currentThread());
          return "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
        };
    try (Client traced = Client.builder(node.endpoint()).traceparent(traceparent).build();
        Guard first = traced.lock("traced").acquire();
        GuardAll second = traced.lockAll("traced/1", "traced/2").acquire()) {
      assertTrue(first.isHeld());
      assertEquals(2, second.tokens().size());
      assertEquals(List.of(Thread.currentThread(), Thread.currentThread()), asked);
    }
  }

  @Test
  void errors_say_what_is_wrong() {
    RejectedException rejected =
        assertThrows(RejectedException.class, () -> client.lock("a\u0001b").acquire());
    assertEquals("invalid_name", rejected.reason());
    try (Guard held = client.lock("taken").acquire()) {
      held.check();
      Duration moment = Duration.ofMillis(50);
      assertThrows(
          TimedOutException.class, () -> client.lock("taken").actor(0).waitFor(moment).acquire());
    }
    Client closed = Client.connect(node.endpoint());
    Guard lost = closed.lock("closed").acquire();
    closed.close();
    assertThrows(LostException.class, lost::token);
    assertThrows(ClosedException.class, () -> closed.lock("closed").acquire());
    UnavailableException unavailable =
        assertThrows(UnavailableException.class, () -> Client.connect("127.0.0.1:1"));
    assertFalse(unavailable.mayHaveHappened());
  }

  @Test
  void a_guard_that_is_garbage_gives_its_lock_back() throws InterruptedException {
    client.lock("garbage").acquire();
    while (client.status("garbage").holderCount() > 0) {
      System.gc();
      Thread.sleep(20);
    }
  }
}
