package holdfast.client;

import holdfast.client.core.Failures;
import holdfast.client.core.Session.Contact;
import holdfast.v1.Failure;
import io.grpc.Metadata;
import io.grpc.Status;
import java.net.ConnectException;
import java.net.UnknownHostException;
import java.util.Set;
import javax.net.ssl.SSLException;

/** What a gRPC status says, in the words of the protocol. */
final class Statuses {
  /** A status without metadata did not come from a node. With these codes it is final. */
  private static final Set<Status.Code> FINAL =
      Set.of(
          Status.Code.INVALID_ARGUMENT,
          Status.Code.OUT_OF_RANGE,
          Status.Code.UNIMPLEMENTED,
          Status.Code.UNAUTHENTICATED,
          Status.Code.PERMISSION_DENIED);

  private static final Metadata.Key<String> REASON = key("holdfast-reason");
  private static final Metadata.Key<String> RETRYABLE = key("holdfast-retryable");
  private static final Metadata.Key<String> MAY_HAVE_HAPPENED = key("holdfast-may-have-happened");
  private static final Metadata.Key<String> LEADER = key("holdfast-leader");
  private static final Metadata.Key<String> RETRY_AFTER_MS = key("holdfast-retry-after-ms");
  private static final Metadata.Key<String> MAP_EPOCH = key("holdfast-map-epoch");
  private static final Metadata.Key<String> GROUP = key("holdfast-group");

  private Statuses() {}

  private static Metadata.Key<String> key(String name) {
    return Metadata.Key.of(name, Metadata.ASCII_STRING_MARSHALLER);
  }

  private static long numberOf(String text) {
    return text != null && text.matches("\\d{1,18}") ? Long.parseLong(text) : 0;
  }

  /** Whether a node said why a stream, or a call, has ended. */
  static boolean isOfNode(Metadata trailers) {
    return trailers != null && trailers.containsKey(REASON);
  }

  /** Why a stream, or a call, has ended. */
  static Failure failureOf(Status status, Metadata trailers) {
    if (status.isOk()) {
      return Failures.retryable("the stream ended");
    }
    String reason = trailers == null ? null : trailers.get(REASON);
    if (reason == null) {
      Failure failure = Failures.retryable(words(status));
      return failure.toBuilder()
          .setRetryable(!FINAL.contains(status.getCode()))
          .setMayHaveHappened(true)
          .setReason(
              switch (status.getCode()) {
                case UNAUTHENTICATED -> holdfast.v1.Reason.REASON_UNAUTHENTICATED;
                case PERMISSION_DENIED -> holdfast.v1.Reason.REASON_PERMISSION_DENIED;
                default -> holdfast.v1.Reason.REASON_UNSPECIFIED;
              })
          .build();
    }
    String leader = trailers.get(LEADER);
    return Failure.newBuilder()
        .setReason(Failures.reasonNamed(reason))
        .setMessage(status.getDescription() == null ? reason : status.getDescription())
        .setRetryable("true".equals(trailers.get(RETRYABLE)))
        .setMayHaveHappened("true".equals(trailers.get(MAY_HAVE_HAPPENED)))
        .setLeader(leader == null ? "" : leader)
        .setRetryAfterMs(numberOf(trailers.get(RETRY_AFTER_MS)))
        .setMapEpoch(numberOf(trailers.get(MAP_EPOCH)))
        .setGroup((int) numberOf(trailers.get(GROUP)))
        .build();
  }

  /** Why there is no connection. */
  static Failure failureToConnect(Status status) {
    SSLException tls = cause(status, SSLException.class);
    if (tls != null) {
      return Failures.denied(
          "no TLS connection: "
              // Netty shows what came instead as hexadecimal digits.
              + String.valueOf(rootOf(tls).getMessage()).replaceFirst("(?<=TLS record): .*", "")
              + "; check that the node speaks TLS, the authority, and the client's certificate");
    }
    if (contactOf(status) == Contact.REFUSED) {
      return Failures.retryable(
          "connection refused: no node listens there; start one, or correct the endpoints");
    }
    UnknownHostException unknown = cause(status, UnknownHostException.class);
    if (unknown != null) {
      return Failures.retryable("the host name cannot be resolved; correct the endpoints");
    }
    return Failures.retryable(words(status));
  }

  static Contact contactOf(Status status) {
    boolean isRefused = cause(status, ConnectException.class) != null;
    return isRefused ? Contact.REFUSED : Contact.NOT_MADE;
  }

  private static String words(Status status) {
    if (status.getCause() != null) {
      return String.valueOf(rootOf(status.getCause()).getMessage());
    }
    return status.getDescription() == null ? status.getCode().name() : status.getDescription();
  }

  private static Throwable rootOf(Throwable error) {
    Throwable root = error;
    while (root.getCause() != null && root.getCause() != root) {
      root = root.getCause();
    }
    return root;
  }

  private static <T extends Throwable> T cause(Status status, Class<T> type) {
    for (Throwable it = status.getCause(); it != null; it = it.getCause()) {
      if (type.isInstance(it)) {
        return type.cast(it);
      }
    }
    return null;
  }
}
