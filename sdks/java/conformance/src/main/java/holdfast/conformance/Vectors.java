package holdfast.conformance;

import com.google.gson.JsonArray;
import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import holdfast.client.core.Endpoints;
import holdfast.client.core.Leases;
import holdfast.client.core.Slots;
import holdfast.client.errors.FenceRefusedException;
import holdfast.client.errors.InvalidEndpointsException;
import holdfast.client.fence.Fence;
import holdfast.client.fence.HighWaterMark;
import java.util.Locale;

/** The library's answers to the vectors of {@code crates/conformance/vectors}. */
final class Vectors {
  private static final int HOLDS = 3;

  private Vectors() {}

  static JsonObject answer(String kind, JsonObject input) {
    return switch (kind) {
      case "lease" -> lease(input);
      case "fence" -> fence(input);
      case "endpoints" -> endpoints(input);
      case "slots" -> slot(input);
      default -> throw new IllegalArgumentException("no vectors of the kind " + kind);
    };
  }

  private static JsonObject lease(JsonObject input) {
    JsonObject opened = input.getAsJsonObject("opened");
    Leases leases =
        new Leases(
            opened.get("sent_at").getAsLong(),
            opened.get("logical_ms").getAsLong(),
            input.get("ttl_ms").getAsLong() * Leases.MS,
            input.get("linger_ms").getAsLong() * Leases.MS);
    input.getAsJsonArray("steps").forEach(step -> play(leases, step.getAsJsonObject()));
    JsonObject holds = new JsonObject();
    for (long hold = 0; hold < HOLDS; hold++) {
      if (leases.validUntil(hold).isPresent()) {
        JsonObject told = new JsonObject();
        told.addProperty("valid_until", leases.validUntil(hold).getAsLong());
        told.addProperty("at_risk_from", leases.atRiskFrom(hold).orElseThrow());
        told.addProperty("ends_before_session", leases.endsBeforeSession(hold));
        holds.add(String.valueOf(hold), told);
      }
    }
    JsonObject answer = new JsonObject();
    answer.addProperty("session_valid_until", leases.sessionValidUntil());
    answer.addProperty("heartbeat_due", leases.heartbeatDue());
    answer.add("holds", holds);
    return answer;
  }

  private static void play(Leases leases, JsonObject step) {
    Long hold = number(step, "hold");
    Long renewal = number(step, "renewal");
    Long deadlineMs = number(step, "deadline_ms");
    Long sentAt = number(step, "sent_at");
    Long logicalMs = number(step, "logical_ms");
    Long ttlMs = number(step, "ttl_ms");
    switch (step.get("do").getAsString()) {
      case "answered" -> leases.answered(sentAt, logicalMs);
      case "answered_best_effort" -> leases.answeredBestEffort(sentAt, logicalMs);
      case "granted" -> leases.granted(hold, deadlineMs, false);
      case "granted_best_effort" -> leases.granted(hold, deadlineMs, true);
      case "renewal_sent" ->
          leases.renewalSent(hold, renewal, sentAt, ttlMs == null ? null : ttlMs * Leases.MS);
      case "renewed" -> leases.renewed(hold, renewal, deadlineMs);
      case "renewal_refused" -> leases.renewalRefused(hold, renewal);
      case "ended" -> leases.ended(hold);
      case "best_effort_restarts" -> leases.bestEffortRestarts();
      case "leader_lost" -> leases.leaderLost();
      default -> throw new IllegalArgumentException("no such step: " + step);
    }
  }

  private static Long number(JsonObject object, String key) {
    JsonElement value = object.get(key);
    return value == null || value.isJsonNull() ? null : value.getAsLong();
  }

  private static JsonObject fence(JsonObject input) {
    JsonObject answer = new JsonObject();
    JsonElement fence = input.get("fence");
    try {
      Fence.Claim claim =
          Fence.admit(
              fence == null || fence.isJsonNull() ? null : fence.getAsString(),
              input.get("resource").getAsString(),
              input.get("accepts").getAsString().equals("best_effort"));
      new HighWaterMark(Long.parseLong(input.get("mark").getAsString())).raiseTo(claim);
      answer.addProperty("token", String.valueOf(claim.token()));
    } catch (FenceRefusedException refused) {
      answer.addProperty("error", refused.kind().code());
    }
    return answer;
  }

  private static JsonObject slot(JsonObject input) {
    JsonObject answer = new JsonObject();
    answer.addProperty("slot", Slots.of(input.get("name").getAsString()));
    return answer;
  }

  private static JsonObject endpoints(JsonObject input) {
    JsonObject answer = new JsonObject();
    try {
      JsonArray addresses = new JsonArray();
      new Endpoints(input.get("text").getAsString(), true).addresses().forEach(addresses::add);
      answer.add("addresses", addresses);
    } catch (InvalidEndpointsException invalid) {
      answer.addProperty("error", invalid.kind().name().toLowerCase(Locale.ROOT));
      if (invalid.kind() == InvalidEndpointsException.Kind.NOT_HOST_AND_PORT) {
        answer.addProperty("part", invalid.part());
      }
    }
    return answer;
  }
}
