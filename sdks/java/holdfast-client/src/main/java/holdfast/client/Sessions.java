package holdfast.client;

import holdfast.client.core.Breaker;
import holdfast.client.core.Endpoints;
import holdfast.client.core.Operations;
import holdfast.client.core.Outcome;
import holdfast.client.core.Redirects;
import holdfast.client.core.Request;
import holdfast.client.core.Routes;
import holdfast.client.errors.ClosedException;
import holdfast.client.errors.HoldfastException;
import holdfast.client.errors.SeveralGroupsException;
import holdfast.v1.Failure;
import holdfast.v1.LockServiceGrpc;
import holdfast.v1.Reason;
import holdfast.v1.StatusRequest;
import holdfast.v1.StatusResponse;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.TimeUnit;
import java.util.function.LongConsumer;

/**
 * The sessions of a client: one in the root group of the cluster, and one in each other group whose
 * locks it uses. Each has an engine of its own, so nothing that happens to one group reaches the
 * sessions in others.
 *
 * <p>The session in the root group is opened first. Its welcome tells which group has which locks;
 * a cluster of one group tells nothing, and then there is no other session. A session in another
 * group is opened by the first acquire of a lock in that group.
 *
 * <p>Engines call {@link #learn} and {@link #ids} under their locks. So nothing here takes the lock
 * of an engine while it has its own.
 */
final class Sessions {
  private final Engine.Settings settings;
  private final SessionIds ids = new SessionIds();
  private final Callbacks callbacks = new Callbacks();
  private final Engine root;
  private final Map<Integer, Engine> others = new TreeMap<>();
  private boolean isClosed;
  private volatile Routes routes = Routes.ONE_GROUP;

  /** Requests that go on when a newer map is known, or after their pause. */
  private final Set<CompletableFuture<Void>> awaitingMap = ConcurrentHashMap.newKeySet();

  Sessions(String endpoints, boolean discover, Engine.Settings settings) {
    // To find mistakes at once, and not when a node is dialled.
    new Endpoints(endpoints, discover);
    settings.security().check();
    this.settings = settings;
    this.root =
        new Engine(
            settings,
            () -> new Endpoints(endpoints, discover),
            ids.ofOneGroup(),
            this::learn,
            callbacks);
  }

  /** The session in the root group. */
  Engine root() {
    return root;
  }

  /** The session in this group, which is opened with its first request. */
  private synchronized Engine in(int group) {
    if (group == Routes.ROOT) {
      return root;
    }
    if (isClosed) {
      throw new ClosedException();
    }
    return others.computeIfAbsent(group, this::begin);
  }

  private Engine begin(int group) {
    return new Engine(
        settings.inGroup(group),
        () -> root.endpointsLedBy(routes.leaderOf(group)),
        ids.ofOneGroup(),
        this::learn,
        callbacks);
  }

  /** A welcome of any session has told this. */
  private void learn(Routes told) {
    synchronized (this) {
      Routes before = routes;
      routes = before.newerOf(told);
      if (!before.isOneGroup() && !before.isOlderThan(routes.epoch())) {
        return;
      }
    }
    awaitingMap.forEach(waiting -> waiting.complete(null));
  }

  /** A request for new locks, which goes to the group that has them. */
  Acquisition acquire(Request request, Duration wait, LongConsumer onQueued) {
    return new Acquisition(this, request, wait, onQueued);
  }

  /**
   * The session that a request for new locks is sent in.
   *
   * @throws SeveralGroupsException if no group has all of the locks
   */
  Engine sessionFor(Request request) {
    return in(routes.groupOf(request));
  }

  /**
   * What becomes of a request that a session was refused. Completes when it may be sent again, and
   * at {@code end} at the latest; null if the caller gets the refusal.
   */
  CompletableFuture<Void> redirect(
      Redirects redirects, Failure refusal, Engine asked, Request request, long end) {
    CompletableFuture<Void> waiting = new CompletableFuture<>();
    synchronized (this) {
      long pause = redirects.next(refusal, asked.group(), request, routes);
      if (pause == Redirects.NEVER) {
        return null;
      }
      awaitingMap.add(waiting);
      long longest = Math.min(pause, Math.max(0, end - Clock.now()));
      waiting.completeOnTimeout(null, longest, TimeUnit.NANOSECONDS);
    }
    return waiting.whenComplete((done, error) -> awaitingMap.remove(waiting));
  }

  /** A read opens no session: where there is none, a node is called, and finds the group itself. */
  StatusResponse status(String name) throws InterruptedException {
    Request request = Request.of(Operations.status(name));
    int group = routes.groupOf(request);
    Engine engine;
    synchronized (this) {
      if (isClosed) {
        throw new ClosedException();
      }
      engine = group == Routes.ROOT ? root : others.get(group);
    }
    if (engine != null) {
      Call call = engine.start(request, Duration.ZERO, new Call());
      Outcome outcome = call.await();
      Failure refusal = outcome.refusal();
      if (refusal == null || refusal.getReason() != Reason.REASON_WRONG_GROUP) {
        return (StatusResponse) outcome.get();
      }
    }
    StatusRequest asked = StatusRequest.newBuilder().setName(name).build();
    return UnaryCall.run(root, LockServiceGrpc.getStatusMethod(), asked);
  }

  /** The worst of all sessions. */
  Breaker.State circuit() {
    List<Breaker.State> states = all().stream().map(Engine::circuit).toList();
    for (Breaker.State bad : List.of(Breaker.State.OPEN, Breaker.State.HALF_OPEN)) {
      if (states.contains(bad)) {
        return bad;
      }
    }
    return Breaker.State.CLOSED;
  }

  private synchronized List<Engine> all() {
    List<Engine> all = new ArrayList<>(others.values());
    all.add(0, root);
    return all;
  }

  /** Ends all sessions, at the same time. Throws the error of the first that could not be ended. */
  void close() {
    synchronized (this) {
      isClosed = true;
    }
    List<Call> closing = all().stream().map(Engine::close).toList();
    HoldfastException failed = null;
    for (Call call : closing) {
      HoldfastException error = call.awaitUninterruptibly().error();
      failed = failed == null ? error : failed;
    }
    if (failed != null) {
      throw failed;
    }
  }

  Callbacks callbacks() {
    return callbacks;
  }
}
