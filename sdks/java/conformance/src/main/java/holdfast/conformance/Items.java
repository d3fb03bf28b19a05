package holdfast.conformance;

import com.google.gson.JsonArray;
import com.google.gson.JsonObject;
import holdfast.client.Observation.Change;
import holdfast.client.WatchEvent;

/** The items of a watch and of an observation, in the words that all drivers share. */
final class Items {
  private Items() {}

  static JsonObject told(Object item) {
    JsonObject told = new JsonObject();
    if (item instanceof Change.Led led) {
      JsonObject leader = new JsonObject();
      leader.addProperty("value", led.value());
      leader.addProperty("epoch", String.valueOf(led.epoch()));
      told.add("leader", leader);
    } else if (item instanceof Change.Vacant) {
      told.addProperty("vacant", true);
    } else if (item instanceof Change.Missed) {
      told.addProperty("missed", true);
    } else {
      tell((WatchEvent) item, told);
    }
    return told;
  }

  private static void tell(WatchEvent event, JsonObject told) {
    switch (event.kind()) {
      case PRESENT -> {
        JsonObject lock = new JsonObject();
        lock.addProperty("name", event.name());
        lock.addProperty("holders", event.holders());
        lock.addProperty("waiters", event.waiters());
        told.add("lock", lock);
      }
      case SNAPSHOT_COMPLETE -> told.addProperty("snapshot_complete", true);
      case RESTARTED -> told.addProperty("restarted", true);
      default -> {
        JsonArray names = new JsonArray();
        event.names().forEach(names::add);
        JsonObject happened = new JsonObject();
        happened.addProperty("kind", event.kind().code());
        happened.add("names", names);
        happened.addProperty("token", String.valueOf(event.token()));
        told.add("event", happened);
      }
    }
  }
}
