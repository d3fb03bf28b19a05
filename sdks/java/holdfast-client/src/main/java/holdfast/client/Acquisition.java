package holdfast.client;

import holdfast.client.core.Hold;
import holdfast.client.core.Leases;
import holdfast.client.core.Outcome;
import holdfast.client.core.Redirects;
import holdfast.client.core.Request;
import holdfast.client.errors.CancelledException;
import holdfast.client.errors.HoldfastException;
import holdfast.client.errors.TimedOutException;
import holdfast.client.errors.UnavailableException;
import holdfast.v1.Failure;
import java.time.Duration;
import java.util.List;
import java.util.SplittableRandom;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.function.Consumer;
import java.util.function.LongConsumer;

/**
 * A request for new locks, on its way to the group that has them. A group that refuses because it
 * does not have them has done nothing. Then the request is sent again, as a new one of the session
 * in the group that has them now.
 */
final class Acquisition {
  private final Sessions sessions;
  private final Request request;
  private final LongConsumer onQueued;
  private final long waitMs;
  private final long waitsUntil;

  /** When it was sent for the first time. */
  private long began;

  private Redirects redirects;
  private boolean isAbandoned;

  /** The session that was asked last, and the call there; null before. */
  private Engine engine;

  private Call call;

  /** Until the client knows what groups there are. */
  private Call opening;

  Acquisition(Sessions sessions, Request request, Duration wait, LongConsumer onQueued) {
    this.sessions = sessions;
    this.request = request;
    this.onQueued = onQueued;
    this.waitMs = wait.toMillis();
    this.waitsUntil = sessions.root().waitsUntil(Clock.now(), wait);
  }

  /** The session that has the holds. */
  synchronized Engine engine() {
    return engine;
  }

  /** Waits for the outcome. A caller that is interrupted leaves nothing. */
  Outcome await() throws InterruptedException {
    try {
      Call first = learnFirst(null);
      Outcome opened = first == null ? Outcome.done() : first.await();
      if (opened.error() != null) {
        return unsent(opened);
      }
      while (true) {
        Outcome outcome = send(null).await();
        CompletableFuture<Void> again = again(outcome);
        if (again == null) {
          return outcome;
        }
        again.get();
      }
    } catch (InterruptedException interrupted) {
      abandon();
      throw interrupted;
    } catch (ExecutionException impossible) {
      throw new IllegalStateException(impossible);
    }
  }

  /**
   * Calls back with the outcome, in the thread for callbacks; in that of the caller if the request
   * cannot be sent.
   */
  void whenDone(Consumer<Outcome> onDone) {
    Consumer<Outcome> onOpened =
        opened -> {
          if (opened.error() != null) {
            onDone.accept(unsent(opened));
          } else {
            sendNow(onDone);
          }
        };
    try {
      if (learnFirst(onOpened) != null) {
        return;
      }
    } catch (HoldfastException error) {
      onDone.accept(Outcome.error(() -> error));
      return;
    }
    sendNow(onDone);
  }

  private void sendNow(Consumer<Outcome> onDone) {
    try {
      send(
          outcome -> {
            CompletableFuture<Void> again = again(outcome);
            if (again == null) {
              onDone.accept(outcome);
            } else {
              again.thenRunAsync(() -> sendNow(onDone), sessions.callbacks());
            }
          });
    } catch (HoldfastException error) {
      onDone.accept(Outcome.error(() -> error));
    }
  }

  /**
   * Opens the session in the root group if no node has answered a hello yet: the welcome tells
   * which group has the locks. A request that is sent before would spend its wait on the way to a
   * group that does not have them. Null if the client knows.
   */
  private synchronized Call learnFirst(Consumer<Outcome> onOpened) {
    if (!sessions.root().awaitsFirstWelcome()) {
      return null;
    }
    opening = new Call(onOpened, null);
    return sessions.root().open(waitsUntil, opening);
  }

  /** Nothing but a session was asked for. */
  private Outcome unsent(Outcome opened) {
    if (!(opened.error() instanceof UnavailableException)) {
      return opened;
    }
    try {
      return sessions.root().unavailable();
    } catch (HoldfastException error) {
      // The client was closed in the meantime.
      return Outcome.error(() -> error);
    }
  }

  private synchronized Call send(Consumer<Outcome> onDone) {
    if (isAbandoned) {
      throw new CancelledException();
    }
    Request sent = request;
    if (engine != null) {
      long leftMs = Math.max(0, waitMs - (Clock.now() - began) / Leases.MS);
      if (waitMs > 0 && leftMs == 0) {
        throw new TimedOutException();
      }
      sent = request.again(leftMs);
    } else {
      began = Clock.now();
    }
    engine = sessions.sessionFor(request);
    call = new Call(onDone, onQueued);
    return engine.start(sent, waitsUntil, call);
  }

  /** Completes when the request may be sent again; null if the outcome stands. */
  private synchronized CompletableFuture<Void> again(Outcome outcome) {
    Failure refusal = outcome.refusal();
    if (refusal == null || waitsUntil <= Clock.now()) {
      return null;
    }
    if (redirects == null) {
      redirects = new Redirects(new SplittableRandom());
    }
    long end = waitMs > 0 ? began + waitMs * Leases.MS : waitsUntil;
    return sessions.redirect(redirects, refusal, engine, request, end);
  }

  /** What was granted. If no node answered, and the request may be granted, it is undone. */
  @SuppressWarnings("unchecked")
  synchronized List<Hold> holds(Outcome outcome) {
    if (call == null) {
      // It was never sent, which is an error.
      return (List<Hold>) outcome.get();
    }
    return (List<Hold>) engine.settled(request, call, outcome);
  }

  /** The caller stops waiting. If the request may still be granted, it is cancelled. */
  synchronized void abandon() {
    isAbandoned = true;
    if (call != null) {
      engine.abandon(request, call);
    } else if (opening != null) {
      sessions.root().abandonOpen(opening);
    }
  }
}
