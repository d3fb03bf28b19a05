package holdfast.client;

import holdfast.client.core.Breaker;
import holdfast.client.core.Endpoints;
import holdfast.client.core.Failures;
import holdfast.client.core.Hold;
import holdfast.client.core.Leases;
import holdfast.client.core.Outcome;
import holdfast.client.core.Output;
import holdfast.client.core.Request;
import holdfast.client.core.Routes;
import holdfast.client.core.Session;
import holdfast.client.core.Session.Contact;
import holdfast.client.core.State;
import holdfast.client.errors.CancelledException;
import holdfast.client.errors.ClosedException;
import holdfast.client.errors.HoldfastException;
import holdfast.client.errors.LossReason;
import holdfast.client.errors.UnavailableException;
import holdfast.v1.ClientFrame;
import holdfast.v1.Failure;
import holdfast.v1.OpenSessionRequest;
import holdfast.v1.Operation.KindCase;
import holdfast.v1.ServerFrame;
import java.time.Duration;
import java.util.List;
import java.util.Queue;
import java.util.SplittableRandom;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.locks.Condition;
import java.util.concurrent.locks.ReentrantLock;
import java.util.function.Consumer;
import java.util.function.LongConsumer;
import java.util.function.Supplier;
import java.util.random.RandomGenerator;

/**
 * Drives a session: it owns the stream, reads the clock, and decides nothing.
 *
 * <p>A caller's request is encoded and sent by the caller's own thread, under the engine's lock.
 * The connection's thread takes in answers. The engine's own thread only minds the time.
 */
final class Engine {
  /** Makes the state of a session from its lease span and a source of jitter. */
  interface StateFactory {
    State create(long span, RandomGenerator jitter);
  }

  /** What the sessions of a client have in common, apart from their group. */
  record Settings(
      OpenSessionRequest session, Duration requestTimeout, Security security, StateFactory states) {
    Settings inGroup(int group) {
      OpenSessionRequest opened = session.toBuilder().setGroup(group).build();
      return new Settings(opened, requestTimeout, security, states);
    }
  }

  private static final System.Logger LOG = System.getLogger("holdfast");
  private static final String UNREACHABLE = "the node {0} cannot be reached: {1}";
  private static final String ENDED = "the session ended, and with it all its locks: {1} ({0})";
  private static final String ENDED_IN_GROUP =
      "the session in group {2} ended, and with it all its locks there: {1} ({0})";
  private static final String BROKEN = "the stream to the node {0} ended: {1}";

  /** A node of which nothing came for so long, though it owes an answer, is pinged, then left. */
  private static final long PING_AFTER = 2_000 * Leases.MS;

  private static final long DIAL_TIMEOUT = 1_000 * Leases.MS;

  /** A thread that wakes so late stood still. What arrived meanwhile may not have been read. */
  private static final long LATE = 50 * Leases.MS;

  private static final long FOR_EVER = 1L << 62;
  private static final long NEVER = Long.MAX_VALUE;

  private final Settings settings;
  private final Supplier<Endpoints> endpoints;
  private final Supplier<String> newSessionId;
  private final Consumer<Routes> onRoutes;
  private final Callbacks callbacks;

  private final ReentrantLock lock = new ReentrantLock();
  private final Condition wake = lock.newCondition();
  private final Queue<LongConsumer> posts = new ConcurrentLinkedQueue<>();
  private final Events events = new Events();

  private boolean isClosed;
  private Session session;

  /** The stream that serves, and the one that is being dialled; null for none. */
  private NodeStream stream;

  private NodeStream dialled;
  private long dialledUntil = NEVER;
  private long dialTimeout = DIAL_TIMEOUT;
  private long sleepsUntil;
  private long heardAt;
  private long pingedAt;

  /** {@code endpoints} and {@code onRoutes} are called under the engine's lock. */
  Engine(
      Settings settings,
      Supplier<Endpoints> endpoints,
      Supplier<String> newSessionId,
      Consumer<Routes> onRoutes,
      Callbacks callbacks) {
    this.settings = settings;
    this.endpoints = endpoints;
    this.newSessionId = newSessionId;
    this.onRoutes = onRoutes;
    this.callbacks = callbacks;
  }

  /** In which group of the cluster the session is. */
  int group() {
    return Math.max(Routes.ROOT, settings.session.getGroup());
  }

  Security security() {
    return settings.security;
  }

  Duration requestTimeout() {
    return settings.requestTimeout;
  }

  // What callers do.

  /** Until when a caller that asks now waits, which is ready to wait so long for what it asks. */
  long waitsUntil(long now, Duration wait) {
    long patience = wait.toMillis() * Leases.MS + settings.requestTimeout.toNanos();
    return now + Math.min(patience, FOR_EVER);
  }

  /** Sends a request. The call has its outcome later. */
  Call start(Request request, Duration wait, Call call) {
    return start(request, waitsUntil(Clock.now(), wait), call);
  }

  /** As above, for a caller that waits until then. */
  Call start(Request request, long waitsUntil, Call call) {
    lock.lock();
    try {
      Session running = running();
      long now = Clock.now();
      // A guard that was dropped is released before its thread asks again.
      takePosts(now);
      if (request.kind() != KindCase.RELEASE && !running.breaker().isClosed()) {
        complete(call, Outcome.error(running.state().unavailable(false)));
        return call;
      }
      noteIdle(running, now);
      call.number = running.handleRequest(now, request.calledBy(call, waitsUntil));
      pump(now);
    } finally {
      lock.unlock();
    }
    return call;
  }

  /** Opens the session now. */
  Outcome open() {
    Call call = open(waitsUntil(Clock.now(), Duration.ZERO), new Call());
    try {
      return call.await();
    } catch (InterruptedException interrupted) {
      Thread.currentThread().interrupt();
      throw new CancelledException();
    }
  }

  /** As above, for a caller that waits until then. The call has its outcome later. */
  Call open(long waitsUntil, Call call) {
    lock.lock();
    try {
      Session running = running();
      long now = Clock.now();
      running.handleOpen(now, call, waitsUntil);
      pump(now);
    } finally {
      lock.unlock();
    }
    return call;
  }

  /** The caller stops waiting for a session. */
  void abandonOpen(Call call) {
    locked(now -> session.handleOpenAbandoned(call));
  }

  /** Whether a request has to wait for the first welcome, which tells what groups there are. */
  boolean awaitsFirstWelcome() {
    lock.lock();
    try {
      return session == null || (!session.wasEverOpen() && session.breaker().isClosed());
    } finally {
      lock.unlock();
    }
  }

  /** Why no node serves a request, which was not sent. */
  Outcome unavailable() {
    lock.lock();
    try {
      return Outcome.error(running().state().unavailable(false));
    } finally {
      lock.unlock();
    }
  }

  /** Sends a request, and waits for its outcome. A caller that is interrupted leaves nothing. */
  Object run(Request request, Duration wait, LongConsumer onQueued) throws InterruptedException {
    Call call = start(request, wait, new Call(null, onQueued));
    Outcome outcome;
    try {
      outcome = call.await();
    } catch (InterruptedException interrupted) {
      abandon(request, call);
      throw interrupted;
    }
    return settled(request, call, outcome);
  }

  /** As {@code run}, for what is not given up when the thread is interrupted. */
  Object runUninterruptibly(Request request, Duration wait) {
    Call call = start(request, wait, new Call());
    return settled(request, call, call.awaitUninterruptibly());
  }

  /** The value of an outcome. If no node answered, and the request may be granted, it is undone. */
  Object settled(Request request, Call call, Outcome outcome) {
    HoldfastException error = outcome.error();
    if (error instanceof UnavailableException) {
      abandon(request, call);
    }
    if (error != null) {
      throw error;
    }
    return outcome.get();
  }

  /** The caller stops waiting. If the request may still be granted, it is cancelled. */
  void abandon(Request request, Call call) {
    if (request.canWait()) {
      locked(now -> session.handleAbandoned(now, call.number));
    }
  }

  /** A guard was garbage. */
  void drop(List<Hold> holds) {
    posts.add(now -> holds.forEach(hold -> session.handleRequest(now, Request.releaseOf(hold))));
    locked(now -> {});
  }

  /** Calls back, in a thread for that, when the hold is lost, also if no message tells it. */
  void watch(Hold hold, Consumer<LossReason> callback) {
    hold.loss().whenReported(reason -> callbacks.execute(() -> callback.accept(reason)));
    watch(hold);
  }

  /** The loss is reported when it happens, and not only when a guard is asked. */
  void watch(Hold hold) {
    locked(now -> session.state().watch(hold));
  }

  /** Ends the session. */
  Call close() {
    Call call = new Call();
    lock.lock();
    try {
      isClosed = true;
      if (session == null) {
        complete(call, Outcome.done());
      } else {
        long now = Clock.now();
        session.handleClose(now, call);
        pump(now);
        wake.signal();
      }
    } finally {
      lock.unlock();
    }
    return call;
  }

  Breaker.State circuit() {
    lock.lock();
    try {
      return session == null ? Breaker.State.CLOSED : session.breaker().state();
    } finally {
      lock.unlock();
    }
  }

  /** The nodes that are known now. */
  List<String> addresses() {
    lock.lock();
    try {
      return session == null ? endpoints.get().addresses() : session.addresses();
    } finally {
      lock.unlock();
    }
  }

  /** The same nodes, for a session in another group, which this node leads; it may be empty. */
  Endpoints endpointsLedBy(String leader) {
    lock.lock();
    try {
      return session == null ? endpoints.get().ledBy(leader) : session.endpointsLedBy(leader);
    } finally {
      lock.unlock();
    }
  }

  boolean isClosed() {
    lock.lock();
    try {
      return isClosed;
    } finally {
      lock.unlock();
    }
  }

  private void locked(LongConsumer what) {
    lock.lock();
    try {
      if (session != null) {
        long now = Clock.now();
        what.accept(now);
        pump(now);
      }
    } finally {
      lock.unlock();
    }
  }

  private Session running() {
    if (isClosed) {
      throw new ClosedException();
    }
    if (session == null) {
      State state =
          settings.states.create(Session.spanOf(settings.session), new SplittableRandom());
      session = new Session(endpoints.get(), settings.session, newSessionId, state, Clock.now());
      Thread thread = new Thread(this::mindTime, "holdfast");
      thread.setDaemon(true);
      thread.start();
    }
    return session;
  }

  // What the engine's thread does.

  private void mindTime() {
    lock.lock();
    try {
      loop();
    } catch (RuntimeException | Error error) {
      LOG.log(
          System.Logger.Level.ERROR,
          "the thread of a session failed: its locks are lost, and the next request opens another",
          error);
      session.handleFailure();
      pump(Clock.now());
      session = null;
    } finally {
      lock.unlock();
    }
  }

  private void loop() {
    boolean wasLate = false;
    while (true) {
      long now = Clock.now();
      takePosts(now);
      noteIdle(session, now);
      session.handleTimeout(now);
      if (dialled != null && dialledUntil <= now) {
        Failure failure =
            Failures.retryable("no connection within " + dialTimeout / Leases.MS + " ms");
        onConnectFailed(now, dialled, Contact.NOT_MADE, failure);
        beMorePatient();
      }
      if (stream != null && !wasLate) {
        session.handleQuiet(now);
        mindSilence(now);
      }
      pump(now);
      if (session.isFinished()) {
        return;
      }
      sleepsUntil = wasLate ? Math.min(nextTimeout(), now + LATE) : nextTimeout();
      wasLate = false;
      if (sleepsUntil > now) {
        try {
          wasLate = wake.awaitNanos(Math.min(sleepsUntil - now, FOR_EVER)) < -LATE;
        } catch (InterruptedException interrupted) {
          LOG.log(System.Logger.Level.DEBUG, "an interrupt of the session's thread is ignored");
        }
      }
      sleepsUntil = 0;
    }
  }

  private void takePosts(long now) {
    for (LongConsumer post = posts.poll(); post != null; post = posts.poll()) {
      post.accept(now);
    }
  }

  /** Does what the session wants, and sends what it has to send. To be called with the lock. */
  private void pump(long now) {
    if (session == null) {
      return;
    }
    do {
      takePosts(now);
      for (Output output = session.nextOutput(); output != null; output = session.nextOutput()) {
        carryOut(now, output);
      }
      sendFrames(now);
      // Streams may have told something meanwhile, in this thread.
    } while (!posts.isEmpty());
    if (nextTimeout() < sleepsUntil || session.isFinished()) {
      wake.signal();
    }
  }

  private void carryOut(long now, Output output) {
    if (output instanceof Output.Completed completed) {
      complete((Call) completed.caller(), completed.outcome());
    } else if (output instanceof Output.Queued queued) {
      LongConsumer told = ((Call) queued.caller()).onQueued();
      if (told != null) {
        callbacks.execute(() -> told.accept(queued.position()));
      }
    } else if (output instanceof Output.Connect connect) {
      dial(now, connect.address());
    } else if (output instanceof Output.Disconnect disconnect) {
      stopDialling();
      if (stream != null) {
        NodeStream left = stream;
        stream = null;
        left.leave(disconnect.withFarewell());
      }
    } else if (output instanceof Output.RoutesLearned learned) {
      onRoutes.accept(learned.routes());
    } else if (output instanceof Output.Ended ended) {
      String why = ended.words().isEmpty() ? ended.reason().words() : ended.words();
      String code = ended.reason().code();
      if (group() == Routes.ROOT) {
        tell(System.Logger.Level.WARNING, ENDED, code, why);
      } else {
        tell(System.Logger.Level.WARNING, ENDED_IN_GROUP, code, why, group());
      }
    }
  }

  /**
   * The program's own handlers may block. They get the fields as parameters, which the format names
   * as {@code java.text.MessageFormat} does.
   */
  private void tell(System.Logger.Level level, String format, Object... fields) {
    if (LOG.isLoggable(level)) {
      callbacks.execute(() -> LOG.log(level, format, fields));
    }
  }

  private void complete(Call call, Outcome outcome) {
    call.resolve(outcome);
    if (call.onDone() != null) {
      callbacks.execute(() -> call.onDone().accept(outcome));
    }
  }

  private void sendFrames(long now) {
    while (stream != null && stream.hasRoom()) {
      ClientFrame frame = session.nextFrame(now);
      if (frame == null) {
        return;
      }
      stream.send(frame);
    }
    if (stream != null && session.hasFrame()) {
      session.handleBlocked(now);
    }
  }

  private void dial(long now, String address) {
    stopDialling();
    try {
      dialled = NodeStream.dial(address, settings.security, events);
      dialledUntil = now + dialTimeout;
    } catch (Exception error) {
      // Also what the program's own function for credentials throws.
      Failure failure = Failures.retryable(String.valueOf(error));
      tell(System.Logger.Level.DEBUG, UNREACHABLE, address, error.toString());
      posts.add(at -> session.handleConnectFailed(at, Contact.NOT_MADE, failure));
    }
  }

  /** A node whose clients all come back at once makes their handshakes one after another. */
  private void beMorePatient() {
    if (settings.security.isTls()) {
      long longest = Math.max(DIAL_TIMEOUT, settings.session.getTtlMs() * Leases.MS / 3);
      dialTimeout = Math.min(dialTimeout * 2, longest);
    }
  }

  private void stopDialling() {
    if (dialled != null) {
      NodeStream left = dialled;
      dialled = null;
      dialledUntil = NEVER;
      left.leave(false);
    }
  }

  /** What streams tell. It is taken in under the lock, in the order in which it was told. */
  private final class Events implements NodeStream.Listener {
    private void post(LongConsumer what) {
      posts.add(what);
      // The thread that has the lock takes posts before it gives the lock back.
      if (!lock.isHeldByCurrentThread()) {
        locked(now -> {});
      }
    }

    @Override
    public void onConnected(NodeStream told) {
      post(now -> Engine.this.onConnected(now, told));
    }

    @Override
    public void onConnectFailed(NodeStream told, Contact contact, Failure failure) {
      post(now -> Engine.this.onConnectFailed(now, told, contact, failure));
    }

    @Override
    public void onFrame(NodeStream told, ServerFrame frame) {
      post(
          now -> {
            if (told == stream) {
              heardAt = now;
              session.handleFrame(now, frame);
            }
          });
    }

    @Override
    public void onRoom(NodeStream told) {
      post(now -> {});
    }

    @Override
    public void onPong(NodeStream told) {
      post(
          now -> {
            if (told == stream) {
              heardAt = now;
            }
          });
    }

    @Override
    public void onEnded(NodeStream told, Failure failure, boolean isFromNode) {
      post(
          now -> {
            if (told == dialled) {
              dialled = null;
              dialledUntil = NEVER;
              session.handleConnectFailed(now, Contact.NOT_MADE, failure);
            } else if (told == stream) {
              tell(System.Logger.Level.DEBUG, BROKEN, told.address(), failure.getMessage());
              session.handleDisconnected(now, failure, isFromNode);
            }
          });
    }
  }

  private void onConnected(long now, NodeStream told) {
    if (told != dialled) {
      return;
    }
    dialled = null;
    dialledUntil = NEVER;
    dialTimeout = DIAL_TIMEOUT;
    if (!session.handleConnected(now)) {
      told.leave(false);
      return;
    }
    // The old stream is left first.
    for (Output output = session.nextOutput(); output != null; output = session.nextOutput()) {
      carryOut(now, output);
    }
    stream = told;
    heardAt = now;
    pingedAt = now;
  }

  private void onConnectFailed(long now, NodeStream told, Contact contact, Failure failure) {
    if (told == dialled) {
      tell(System.Logger.Level.DEBUG, UNREACHABLE, told.address(), failure.getMessage());
      stopDialling();
      session.handleConnectFailed(now, contact, failure);
    }
  }

  /** A connection can stand long after its other end has gone. */
  private void mindSilence(long now) {
    long lastSign = Math.max(heardAt, pingedAt);
    if (stream == null || !session.isOwedAnAnswer() || now - lastSign < PING_AFTER) {
      return;
    }
    if (pingedAt > heardAt) {
      session.handleDisconnected(now, NodeStream.silence(), false);
    } else {
      pingedAt = now;
      stream.ping();
    }
  }

  /** Silence counts from when the node owes an answer. */
  private void noteIdle(Session running, long now) {
    if (!running.isOwedAnAnswer()) {
      heardAt = now;
    }
  }

  private long nextTimeout() {
    long due = Math.min(session.nextTimeout(), dialledUntil);
    if (stream != null && session.isOwedAnAnswer()) {
      due = Math.min(due, Math.max(heardAt, pingedAt) + PING_AFTER);
    }
    return due;
  }
}
