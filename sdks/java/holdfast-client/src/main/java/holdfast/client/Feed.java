package holdfast.client;

import holdfast.client.core.Backoff;
import holdfast.client.core.Endpoints;
import holdfast.client.core.Failures;
import holdfast.client.errors.CancelledException;
import holdfast.client.errors.ClosedException;
import holdfast.client.errors.UnavailableException;
import holdfast.v1.Failure;
import holdfast.v1.Reason;
import io.grpc.CallOptions;
import io.grpc.ClientCall;
import io.grpc.ConnectivityState;
import io.grpc.ManagedChannel;
import io.grpc.Metadata;
import io.grpc.MethodDescriptor;
import io.grpc.Status;
import java.util.ArrayDeque;
import java.util.Iterator;
import java.util.List;
import java.util.NoSuchElementException;
import java.util.Queue;
import java.util.SplittableRandom;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;

/**
 * What a node tells by and by. If the connection breaks, another node goes on where the last one
 * was.
 *
 * <p>One thread at a time may ask for the next item. Any thread may close it.
 *
 * @param <Q> the request
 * @param <A> an answer of the node
 * @param <E> an item for the program
 */
public abstract sealed class Feed<Q, A, E> implements Iterable<E>, AutoCloseable
    permits Watch, Observation {
  /** A node from which nothing came for so long is asked whether it is there. */
  private static final long SILENCE_SECONDS = 10;

  /** What the stream of a node told: an answer, or its end. */
  private record Told<A>(A answer, Failure end) {}

  private final Engine engine;
  private final MethodDescriptor<Q, A> method;
  private final Backoff backoff = new Backoff(new SplittableRandom());

  /** As many as were asked for from the node, which is one at a time, and an end. */
  private final BlockingQueue<Told<A>> told = new LinkedBlockingQueue<>();

  private final Queue<E> items = new ArrayDeque<>();
  private Endpoints endpoints;
  private String address = "";
  private long failingSince = Long.MAX_VALUE;

  private ManagedChannel channel;
  private ClientCall<Q, A> call;
  private volatile boolean isClosed;

  Feed(Engine engine, MethodDescriptor<Q, A> method) {
    this.engine = engine;
    this.method = method;
    this.endpoints = endpointsOf(engine.addresses());
  }

  /** What to ask for now. */
  abstract Q request();

  /** Whether a request as {@code request} makes it leaves no gap. */
  abstract boolean canGoOn();

  /** The items of an answer are added to the queue. */
  abstract void take(A answer, Queue<E> added);

  /** The stream cannot go on where it was: it begins again. */
  abstract void restart(String why, Queue<E> added);

  /**
   * Waits for the next item. It throws {@code ClosedException} after the client was closed, {@code
   * CancelledException} if the thread is interrupted, and {@code UnavailableException} if no node
   * serves for the client's request timeout. After the latter two it can be asked again, and goes
   * on where it was.
   *
   * @throws NoSuchElementException if it was closed
   */
  public E next() {
    while (items.isEmpty()) {
      if (isClosed) {
        throw new NoSuchElementException("it is closed");
      }
      if (engine.isClosed()) {
        throw new ClosedException();
      }
      try {
        step();
      } catch (InterruptedException interrupted) {
        Thread.currentThread().interrupt();
        throw new CancelledException();
      }
    }
    return items.remove();
  }

  private void step() throws InterruptedException {
    if (!isOpen()) {
      open();
    }
    Told<A> next = told.poll(SILENCE_SECONDS, TimeUnit.SECONDS);
    if (next == null) {
      // Pings mind the silence. This is only so that the end of the client is noticed.
      return;
    }
    if (next.answer == null) {
      onEnded(next.end);
      return;
    }
    failingSince = Long.MAX_VALUE;
    backoff.reset();
    endpoints.reached();
    take(next.answer, items);
    ClientCall<Q, A> present = call;
    if (present != null) {
      present.request(1);
    }
  }

  private synchronized boolean isOpen() {
    return call != null;
  }

  private synchronized void open() {
    List<String> known = engine.addresses();
    if (!endpoints.addresses().containsAll(known)) {
      endpoints = endpointsOf(known);
    }
    address = endpoints.nextAddress();
    told.clear();
    try {
      Security security = engine.security();
      channel =
          security
              .channel(address)
              .keepAliveTime(SILENCE_SECONDS, TimeUnit.SECONDS)
              .keepAliveTimeout(SILENCE_SECONDS, TimeUnit.SECONDS)
              .build();
      call = channel.newCall(method, CallOptions.DEFAULT);
      call.start(new Events(channel), security.headers());
      call.request(1);
      call.sendMessage(request());
      call.halfClose();
    } catch (Exception error) {
      told.add(new Told<>(null, Failures.retryable(String.valueOf(error))));
    }
  }

  private void onEnded(Failure failure) throws InterruptedException {
    leave();
    if (isClosed) {
      return;
    }
    Reason reason = failure.getReason();
    if (reason == Reason.REASON_COMPACTED || reason == Reason.REASON_SLOW_READER) {
      restart(failure.getMessage(), items);
      return;
    }
    endpoints.couldNotReach(address);
    if (!failure.getRetryable()) {
      if (!isDenied(reason) || endpoints.hasTriedAll()) {
        throw Failures.rejected(failure).get();
      }
      return;
    }
    if (!failure.getLeader().isEmpty()) {
      endpoints.followLeader(failure.getLeader());
    }
    if (!canGoOn()) {
      restart("the connection broke during the snapshot", items);
    }
    long now = Clock.now();
    failingSince = Math.min(failingSince, now);
    if (now - failingSince > engine.requestTimeout().toNanos()) {
      failingSince = Long.MAX_VALUE;
      throw new UnavailableException(address + ": " + failure.getMessage(), false);
    }
    if (endpoints.hasTriedAll()) {
      TimeUnit.NANOSECONDS.sleep(backoff.nextDelay());
    }
  }

  /** Another node may accept the client. */
  private static boolean isDenied(Reason reason) {
    return reason == Reason.REASON_UNAUTHENTICATED;
  }

  private synchronized void leave() {
    if (channel != null) {
      channel.shutdownNow();
    }
    channel = null;
    call = null;
  }

  private static Endpoints endpointsOf(List<String> addresses) {
    return new Endpoints(String.join(",", addresses), true);
  }

  /** Ends it, also while another thread waits for the next item. */
  @Override
  public void close() {
    isClosed = true;
    leave();
    told.add(new Told<>(null, Failures.retryable("it is closed")));
  }

  /** The items, until it is closed. {@code hasNext} waits. */
  @Override
  public Iterator<E> iterator() {
    return new Iterator<>() {
      private E ahead;

      @Override
      public boolean hasNext() {
        try {
          ahead = ahead == null ? Feed.this.next() : ahead;
          return true;
        } catch (NoSuchElementException closed) {
          return false;
        }
      }

      @Override
      public E next() {
        E item = ahead == null ? Feed.this.next() : ahead;
        ahead = null;
        return item;
      }
    };
  }

  private final class Events extends ClientCall.Listener<A> {
    private final ManagedChannel of;

    Events(ManagedChannel of) {
      this.of = of;
    }

    private void tell(Told<A> what) {
      synchronized (Feed.this) {
        if (of == channel) {
          told.add(what);
        }
      }
    }

    @Override
    public void onMessage(A answer) {
      tell(new Told<>(answer, null));
    }

    @Override
    public void onClose(Status status, Metadata trailers) {
      boolean wasConnected = of.getState(false) == ConnectivityState.READY;
      Failure ended = Statuses.failureOf(status, trailers);
      boolean isFromNode = wasConnected || trailers.keys().contains("holdfast-reason");
      tell(new Told<>(null, isFromNode ? ended : Statuses.failureToConnect(status)));
    }
  }
}
