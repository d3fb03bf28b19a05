package holdfast.client;

import holdfast.client.core.State;
import holdfast.v1.OpenSessionRequest;
import holdfast.v1.Owner;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.net.InetAddress;
import java.net.UnknownHostException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.function.Function;
import java.util.function.Supplier;

/** The settings of a client. */
public final class ClientBuilder {
  private static final int TEXT_BYTES_MAX = 256;

  /** With a shorter one no heartbeat would be answered in time. */
  private static final Duration LINGER_MIN = Duration.ofMillis(100);

  private final String endpoints;
  private Duration ttl = Duration.ofSeconds(30);
  private Duration linger;
  private Duration requestTimeout = Duration.ofSeconds(10);
  private String application;
  private String note = "";
  private boolean discover = true;
  private Path ca;
  private Path cert;
  private Path key;
  private Verify verify = Verify.CLUSTER;
  private Supplier<String> credential;
  private Supplier<String> traceparents;
  private Engine.StateFactory states = State::new;
  private Function<Security.Files, Security> securities = Security::new;

  ClientBuilder(String endpoints) {
    this.endpoints = endpoints;
  }

  /** The session's TTL: after that long without a heartbeat, its locks are free. */
  public ClientBuilder ttl(Duration duration) {
    ttl = duration;
    return this;
  }

  /** How long the session outlives its broken connection; by default the TTL. */
  public ClientBuilder linger(Duration duration) {
    if (duration.compareTo(LINGER_MIN) < 0) {
      throw new IllegalArgumentException(
          "the linger time is below 100 ms; take a longer one, or none: then it is the TTL");
    }
    linger = duration;
    return this;
  }

  /** How long a call waits for its answer, beyond the wait that it asks for. */
  public ClientBuilder requestTimeout(Duration duration) {
    requestTimeout = duration;
    return this;
  }

  /** The name of the program, for people who look at its locks. */
  public ClientBuilder application(String name) {
    application = name;
    return this;
  }

  /** Further words for people who look at the session. */
  public ClientBuilder note(String words) {
    note = words;
    return this;
  }

  /** With {@code false}, the client keeps to the endpoints that it was given. */
  public ClientBuilder discover(boolean isWanted) {
    discover = isWanted;
    return this;
  }

  /** The file of the cluster's authority. With it, the client speaks TLS and nothing else. */
  public ClientBuilder ca(Path file) {
    ca = file;
    return this;
  }

  /** The files of the client's own certificate and of its key (PKCS 8), in PEM. */
  public ClientBuilder certificate(Path certFile, Path keyFile) {
    cert = certFile;
    key = keyFile;
    return this;
  }

  /** With what the certificate of a node is compared. */
  public ClientBuilder verify(Verify what) {
    verify = what;
    return this;
  }

  /** Gives the present token, {@code hft_…}. It is asked for at each connection. */
  public ClientBuilder credential(Supplier<String> token) {
    credential = token;
    return this;
  }

  /** A file with the token. It is read again for each connection. */
  public ClientBuilder authFile(Path file) {
    return credential(
        () -> {
          try {
            return Files.readString(file);
          } catch (IOException error) {
            throw new UncheckedIOException(error);
          }
        });
  }

  /**
   * Gives the {@code traceparent} of the present span, for requests that do not say it themselves.
   * It may return null.
   */
  public ClientBuilder traceparent(Supplier<String> present) {
    traceparents = present;
    return this;
  }

  /** For tests of the protocol, which break its rules. */
  ClientBuilder states(Engine.StateFactory factory) {
    states = factory;
    return this;
  }

  /** As {@link #states}. */
  ClientBuilder securities(Function<Security.Files, Security> factory) {
    securities = factory;
    return this;
  }

  /** The session is opened by the first request. */
  public Client build() {
    OpenSessionRequest.Builder settings = OpenSessionRequest.newBuilder().setTtlMs(ttl.toMillis());
    if (linger != null) {
      settings.setLingerMs(linger.toMillis());
    }
    settings.setOwner(
        Owner.newBuilder()
            .setApplication(cut(application == null ? program() : application))
            .setHost(cut(host()))
            .setPid((int) ProcessHandle.current().pid())
            .setNote(cut(note)));
    Security security = securities.apply(new Security.Files(ca, cert, key, verify, credential));
    Engine.Settings common =
        new Engine.Settings(settings.build(), requestTimeout, security, states);
    return new Client(new Sessions(endpoints, discover, common), traceparents);
  }

  private static String program() {
    String command = System.getProperty("sun.java.command", "java").split(" ", 2)[0];
    return command.substring(command.lastIndexOf('/') + 1);
  }

  private static String host() {
    try {
      return InetAddress.getLocalHost().getHostName();
    } catch (UnknownHostException unnamed) {
      return "";
    }
  }

  /** At most so many bytes, and no half character at the end. */
  private static String cut(String text) {
    String cut = text;
    while (cut.getBytes(StandardCharsets.UTF_8).length > TEXT_BYTES_MAX) {
      cut = cut.substring(0, cut.offsetByCodePoints(cut.length(), -1));
    }
    return cut;
  }
}
