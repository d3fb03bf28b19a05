package holdfast.conformance;

import com.google.gson.JsonArray;
import com.google.gson.JsonObject;
import holdfast.client.errors.BusyException;
import holdfast.client.errors.CancelledException;
import holdfast.client.errors.ClosedException;
import holdfast.client.errors.DeadlockException;
import holdfast.client.errors.DiedException;
import holdfast.client.errors.InvalidEndpointsException;
import holdfast.client.errors.LostException;
import holdfast.client.errors.PermissionDeniedException;
import holdfast.client.errors.RejectedException;
import holdfast.client.errors.TimedOutException;
import holdfast.client.errors.UnauthenticatedException;
import holdfast.client.errors.UnavailableException;

/** The library's errors in the words that all drivers share. */
final class Errors {
  private Errors() {}

  static JsonObject told(Exception error) {
    JsonObject told = new JsonObject();
    told.addProperty("kind", kind(error));
    told.addProperty("message", String.valueOf(error.getMessage()));
    if (error instanceof LostException lost) {
      told.addProperty("reason", lost.reason().code());
    } else if (error instanceof RejectedException rejected) {
      told.addProperty("reason", rejected.reason());
      told.addProperty("retryable", rejected.isRetryable());
    } else if (error instanceof UnavailableException unavailable) {
      told.addProperty("may_have_happened", unavailable.mayHaveHappened());
    } else if (error instanceof DiedException died) {
      told.addProperty("since", String.valueOf(died.since()));
    } else if (error instanceof DeadlockException deadlock) {
      told.add("cycle", cycle(deadlock));
    }
    return told;
  }

  private static String kind(Exception error) {
    if (error instanceof BusyException) {
      return "busy";
    } else if (error instanceof TimedOutException) {
      return "timed_out";
    } else if (error instanceof CancelledException) {
      return "cancelled";
    } else if (error instanceof DeadlockException) {
      return "deadlock";
    } else if (error instanceof DiedException) {
      return "died";
    } else if (error instanceof LostException) {
      return "lost";
    } else if (error instanceof UnauthenticatedException) {
      return "unauthenticated";
    } else if (error instanceof PermissionDeniedException) {
      return "permission_denied";
    } else if (error instanceof RejectedException) {
      return "rejected";
    } else if (error instanceof UnavailableException) {
      return "unavailable";
    } else if (error instanceof ClosedException) {
      return "closed";
    } else if (error instanceof InvalidEndpointsException
        || error instanceof IllegalArgumentException) {
      return "invalid";
    } else if (error instanceof UnsupportedOperationException) {
      return "unsupported";
    }
    error.printStackTrace();
    return "other";
  }

  private static JsonArray cycle(DeadlockException deadlock) {
    JsonArray cycle = new JsonArray();
    for (DeadlockException.Link link : deadlock.cycle()) {
      JsonObject told = new JsonObject();
      told.addProperty("session", link.session());
      told.addProperty("actor", link.actor());
      told.addProperty("waits_for", link.waitsFor());
      cycle.add(told);
    }
    return cycle;
  }
}
