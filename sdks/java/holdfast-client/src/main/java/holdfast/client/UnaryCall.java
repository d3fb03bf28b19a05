package holdfast.client;

import holdfast.client.core.Backoff;
import holdfast.client.core.Endpoints;
import holdfast.client.core.Failures;
import holdfast.client.errors.UnavailableException;
import holdfast.v1.Failure;
import io.grpc.CallOptions;
import io.grpc.ClientInterceptors;
import io.grpc.ManagedChannel;
import io.grpc.MethodDescriptor;
import io.grpc.StatusRuntimeException;
import io.grpc.stub.ClientCalls;
import io.grpc.stub.MetadataUtils;
import java.util.SplittableRandom;
import java.util.concurrent.TimeUnit;

/** A read without a session, at one node after the other until one answers. */
final class UnaryCall {
  private static final long ANSWER_PATIENCE = TimeUnit.SECONDS.toNanos(3);

  private UnaryCall() {}

  /** Throws {@code UnavailableException} if no node answers within the request timeout. */
  static <Q, A> A run(Engine engine, MethodDescriptor<Q, A> method, Q request)
      throws InterruptedException {
    Endpoints endpoints = engine.endpointsLedBy("");
    Backoff backoff = new Backoff(new SplittableRandom());
    long until = Clock.now() + engine.requestTimeout().toNanos();
    while (true) {
      String address = endpoints.nextAddress();
      Failure failure;
      try {
        long patience = Math.min(ANSWER_PATIENCE, until - Clock.now());
        return ask(engine.security(), address, method, request, patience);
      } catch (StatusRuntimeException error) {
        failure = Statuses.failureOf(error.getStatus(), error.getTrailers());
      } catch (Exception error) {
        // Also what the program's own function for credentials throws.
        failure = Failures.retryable(String.valueOf(error));
      }
      if (Thread.interrupted()) {
        throw new InterruptedException();
      }
      if (!failure.getRetryable()) {
        throw Failures.rejected(failure).get();
      }
      endpoints.followLeader(failure.getLeader());
      long pause = backoff.nextDelay();
      if (Clock.now() + pause >= until) {
        throw new UnavailableException(address + ": " + failure.getMessage(), false);
      }
      TimeUnit.NANOSECONDS.sleep(pause);
    }
  }

  private static <Q, A> A ask(
      Security security, String address, MethodDescriptor<Q, A> method, Q request, long patience)
      throws Exception {
    var headers = MetadataUtils.newAttachHeadersInterceptor(security.headers());
    ManagedChannel channel = security.channel(address).build();
    try {
      CallOptions options = CallOptions.DEFAULT.withDeadlineAfter(patience, TimeUnit.NANOSECONDS);
      return ClientCalls.blockingUnaryCall(
          ClientInterceptors.intercept(channel, headers), method, options, request);
    } finally {
      channel.shutdownNow();
    }
  }
}
