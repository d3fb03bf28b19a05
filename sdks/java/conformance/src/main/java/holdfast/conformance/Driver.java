package holdfast.conformance;

import com.google.gson.JsonArray;
import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import com.google.gson.JsonParser;
import holdfast.client.Client;
import holdfast.client.ClientBuilder;
import holdfast.client.Feed;
import holdfast.client.Guard;
import holdfast.client.GuardAll;
import holdfast.client.HeldLocks;
import holdfast.client.Leadership;
import holdfast.client.LockRequest;
import holdfast.client.Misbehaviour;
import holdfast.client.Policy;
import holdfast.client.Tier;
import holdfast.client.errors.LossReason;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;

/**
 * The driver of the Java library for the conformance suite: JSON lines on standard input and
 * output.
 *
 * <p>With {@code --misbehave MODE} it breaks a rule of the protocol, and the suite must find that.
 */
public final class Driver {
  /** What the language does not have, and where no program can block the library. */
  private static final List<String> LACKS = List.of("fork", "block");

  private static final Duration LONG = Duration.ofDays(1);

  private final Misbehaviour misbehaviour;
  private final PrintStream out = new PrintStream(System.out, true, StandardCharsets.UTF_8);
  private final Map<String, Client> clients = new ConcurrentHashMap<>();
  private final Map<String, HeldLocks> guards = new ConcurrentHashMap<>();

  private final Map<String, Feed<?, ?, ?>> watches = new ConcurrentHashMap<>();
  private final Map<String, JsonObject> watchRequests = new ConcurrentHashMap<>();

  /** The threads that answer, by the id of the request. To cancel one is to interrupt it. */
  private final Map<Long, Thread> answering = new ConcurrentHashMap<>();

  private Driver(Misbehaviour misbehaviour) {
    this.misbehaviour = misbehaviour;
  }

  public static void main(String[] arguments) throws IOException {
    boolean misbehaves = arguments.length == 2 && arguments[0].equals("--misbehave");
    if (arguments.length > 0 && !misbehaves) {
      throw new IllegalArgumentException("usage: driver [--misbehave MODE]");
    }
    Driver driver = new Driver(misbehaves ? Misbehaviour.named(arguments[1]) : null);
    BufferedReader lines =
        new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    for (String line = lines.readLine(); line != null; line = lines.readLine()) {
      driver.take(JsonParser.parseString(line).getAsJsonObject());
    }
    // Threads that still wait must not keep the process.
    System.exit(0);
  }

  private void take(JsonObject request) {
    switch (text(request, "op")) {
      case "hello", "vectors", "token", "cancel" -> answer(request);
      default -> {
        Thread thread = new Thread(() -> answer(request), "request-" + id(request));
        thread.setDaemon(true);
        answering.put(id(request), thread);
        thread.start();
      }
    }
  }

  private void answer(JsonObject request) {
    JsonObject reply = new JsonObject();
    reply.addProperty("id", id(request));
    try {
      reply.add("ok", answerTo(request));
    } catch (Exception error) {
      reply.add("err", Errors.told(error));
    }
    answering.remove(id(request));
    out.println(reply);
  }

  private JsonObject answerTo(JsonObject request) throws InterruptedException {
    return switch (text(request, "op")) {
      case "hello" -> hello();
      case "vectors" -> vectors(request);
      case "token" -> tokens(guards.get(text(request, "guard")));
      case "cancel" -> cancel(request);
      case "connect" -> connect(request);
      case "close" -> close(request);
      case "acquire" -> acquire(request);
      case "acquire_all" -> acquireAll(request);
      case "campaign" -> campaign(request);
      case "release" -> release(request);
      case "renew" -> renew(request);
      case "convert" -> convert(request);
      case "transfer" -> transfer(request);
      case "await_loss" -> awaitLoss(request);
      case "watch", "observe" -> beginWatch(request);
      case "next" -> next(request);
      case "end_watch" -> endWatch(request);
      default -> throw new UnsupportedOperationException(text(request, "op"));
    };
  }

  private static JsonObject hello() {
    JsonArray lacks = new JsonArray();
    LACKS.forEach(lacks::add);
    JsonObject answer = object("name", "java");
    answer.add("lacks", lacks);
    return answer;
  }

  private static JsonObject vectors(JsonObject request) {
    JsonArray answers = new JsonArray();
    for (JsonElement input : request.getAsJsonArray("cases")) {
      answers.add(Vectors.answer(text(request, "kind"), input.getAsJsonObject()));
    }
    JsonObject answer = new JsonObject();
    answer.add("answers", answers);
    return answer;
  }

  private JsonObject cancel(JsonObject request) {
    Thread thread = answering.get(request.get("call").getAsLong());
    if (thread != null) {
      thread.interrupt();
    }
    return new JsonObject();
  }

  private JsonObject connect(JsonObject request) {
    List<String> endpoints = texts(request, "endpoints");
    ClientBuilder builder = Client.builder(String.join(",", endpoints));
    builder.ttl(span(request, "ttl_ms")).application("conformance");
    if (has(request, "request_timeout_ms")) {
      builder.requestTimeout(span(request, "request_timeout_ms"));
    }
    if (has(request, "ca")) {
      builder.ca(path(request, "ca"));
    }
    if (has(request, "cert")) {
      builder.certificate(path(request, "cert"), path(request, "key"));
    }
    if (has(request, "auth_file")) {
      builder.authFile(path(request, "auth_file"));
    }
    if (misbehaviour != null) {
      misbehaviour.in(builder);
    }
    Client client = builder.build();
    clients.put(text(request, "as"), has(request, "when_needed") ? client : client.open());
    return new JsonObject();
  }

  private JsonObject close(JsonObject request) {
    client(request).close();
    return new JsonObject();
  }

  private JsonObject acquire(JsonObject request) {
    LockRequest lock = client(request).lock(text(request, "name"));
    switch (text(request, "mode")) {
      case "shared" -> lock.shared();
      case "permit" -> lock.permits(request.get("permits").getAsInt());
      default -> {}
    }
    if (has(request, "wait_ms")) {
      lock.waitFor(span(request, "wait_ms"));
    }
    if (has(request, "ttl_ms")) {
      lock.ttl(span(request, "ttl_ms"));
    }
    if (has(request, "auto_renew")) {
      lock.autoRenew(request.get("auto_renew").getAsBoolean());
    }
    if (has(request, "max_hold_ms")) {
      lock.maxHold(span(request, "max_hold_ms"));
    }
    if (has(request, "reentrant") && request.get("reentrant").getAsBoolean()) {
      lock.reentrant();
    }
    if (has(request, "actor")) {
      lock.actor(request.get("actor").getAsLong());
    }
    if (has(request, "policy")) {
      lock.policy(Policy.valueOf(text(request, "policy").toUpperCase(Locale.ROOT)));
    }
    if (has(request, "since")) {
      lock.since(Long.parseLong(text(request, "since")));
    }
    if (has(request, "tier")) {
      lock.tier(Tier.valueOf(text(request, "tier").toUpperCase(Locale.ROOT)));
    }
    return keep(request, lock.acquire());
  }

  private JsonObject acquireAll(JsonObject request) {
    Duration wait = has(request, "wait_ms") ? span(request, "wait_ms") : Duration.ZERO;
    return keep(request, client(request).lockAll(texts(request, "names")).waitFor(wait).acquire());
  }

  private JsonObject campaign(JsonObject request) {
    Leadership leadership =
        client(request)
            .election(text(request, "name"))
            .lead(text(request, "value"), span(request, "wait_ms"));
    keep(request, leadership);
    return object("epoch", String.valueOf(leadership.epoch()));
  }

  private JsonObject release(JsonObject request) {
    HeldLocks held = guards.get(text(request, "guard"));
    if (held instanceof Guard guard) {
      return object("outcome", guard.release().code());
    }
    return object("outcome", ((GuardAll) held).release().get(0).code());
  }

  private JsonObject renew(JsonObject request) {
    if (has(request, "ttl_ms")) {
      guard(request).renew(span(request, "ttl_ms"));
    } else {
      guard(request).renew();
    }
    return new JsonObject();
  }

  private JsonObject convert(JsonObject request) {
    if (text(request, "mode").equals("shared")) {
      guard(request).convertToShared();
    } else {
      guard(request).convertToExclusive(span(request, "wait_ms"));
    }
    return new JsonObject();
  }

  private JsonObject transfer(JsonObject request) {
    return object("token", String.valueOf(guard(request).transfer(text(request, "to"))));
  }

  private JsonObject awaitLoss(JsonObject request) throws InterruptedException {
    LossReason reason = guards.get(text(request, "guard")).awaitLost(LONG).orElseThrow();
    return object("reason", reason.code());
  }

  private JsonObject beginWatch(JsonObject request) {
    Client client = client(request);
    String prefix = text(request, "prefix");
    boolean isBare = has(request, "snapshot") && !request.get("snapshot").getAsBoolean();
    Feed<?, ?, ?> watch;
    if (text(request, "op").equals("observe")) {
      watch = client.election(text(request, "name")).observe();
    } else {
      watch = isBare ? client.watchFromNow(prefix) : client.watch(prefix);
    }
    watches.put(text(request, "as"), watch);
    watchRequests.put(text(request, "as"), request);
    return new JsonObject();
  }

  private JsonObject next(JsonObject request) {
    JsonArray items = new JsonArray();
    items.add(Items.told(watches.get(text(request, "watch")).next()));
    if (misbehaviour == Misbehaviour.FORGET_POSITION) {
      watches.get(text(request, "watch")).close();
      JsonObject again = watchRequests.get(text(request, "watch"));
      again.addProperty("snapshot", false);
      beginWatch(again);
    }
    JsonObject answer = new JsonObject();
    answer.add("items", items);
    return answer;
  }

  private JsonObject endWatch(JsonObject request) {
    watches.remove(text(request, "watch")).close();
    return new JsonObject();
  }

  private JsonObject keep(JsonObject request, HeldLocks held) {
    JsonObject told = tokens(held);
    guards.put(text(request, "as"), held);
    return told;
  }

  private static JsonObject tokens(HeldLocks held) {
    if (held instanceof GuardAll all) {
      JsonArray tokens = new JsonArray();
      all.tokens().forEach(token -> tokens.add(String.valueOf(token)));
      JsonObject told = new JsonObject();
      told.add("tokens", tokens);
      return told;
    }
    Guard guard = (Guard) held;
    JsonObject told = object("token", String.valueOf(guard.token()));
    told.addProperty("fence", guard.fence());
    return told;
  }

  private Client client(JsonObject request) {
    return clients.get(text(request, "client"));
  }

  private Guard guard(JsonObject request) {
    return (Guard) guards.get(text(request, "guard"));
  }

  private static long id(JsonObject request) {
    return request.get("id").getAsLong();
  }

  private static boolean has(JsonObject request, String key) {
    return request.has(key) && !request.get(key).isJsonNull();
  }

  /** Empty if it is not there. */
  private static String text(JsonObject request, String key) {
    return has(request, key) ? request.get(key).getAsString() : "";
  }

  private static List<String> texts(JsonObject request, String key) {
    List<String> texts = new ArrayList<>();
    request.getAsJsonArray(key).forEach(it -> texts.add(it.getAsString()));
    return texts;
  }

  private static Path path(JsonObject request, String key) {
    return Path.of(text(request, key));
  }

  private static Duration span(JsonObject request, String key) {
    return Duration.ofMillis(request.get(key).getAsLong());
  }

  private static JsonObject object(String key, String value) {
    JsonObject object = new JsonObject();
    object.addProperty(key, value);
    return object;
  }
}
