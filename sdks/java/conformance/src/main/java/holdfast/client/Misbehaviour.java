package holdfast.client;

import holdfast.client.core.InFlight;
import holdfast.client.core.Leases;
import holdfast.client.core.Request;
import holdfast.client.core.State;
import holdfast.v1.Answer;
import holdfast.v1.Failure;
import holdfast.v1.GroupMap;
import io.grpc.netty.shaded.io.netty.handler.ssl.util.InsecureTrustManagerFactory;
import java.security.cert.X509Certificate;
import java.util.Collection;
import java.util.List;
import java.util.Locale;
import java.util.function.Consumer;
import java.util.random.RandomGenerator;
import javax.net.ssl.X509ExtendedTrustManager;

/** Rules of the protocol that the driver can be told to break. The library has no such code. */
public enum Misbehaviour {
  NO_MARGIN(builder -> builder.states(NoMargin::new)),
  NO_CLOCK(builder -> builder.states(NoClock::new)),
  CHATTY(builder -> builder.states(Chatty::new)),
  RETRY_NEW_ID(builder -> builder.states(RetryNewId::new)),
  ACK_EARLY(builder -> builder.states(AckEarly::new)),
  FORGET_CANCEL(builder -> builder.states(ForgetCancel::new)),
  COUNT_FAILURES(builder -> builder.states(CountFailures::new)),
  IGNORE_MAP(builder -> builder.states(IgnoreMap::new)),
  TRUST_ANY_NODE(builder -> builder.securities(TrustAnyNode::new)),
  CREDENTIAL_ONCE(builder -> builder.securities(files -> new Security(withFixedCredential(files)))),
  /** Only the configured endpoints are used. */
  IGNORE_MEMBERS(builder -> builder.discover(false)),
  /** The driver itself begins watches again, without their position. */
  FORGET_POSITION(builder -> {});

  private final Consumer<ClientBuilder> change;

  Misbehaviour(Consumer<ClientBuilder> change) {
    this.change = change;
  }

  /** Such as {@code no-margin}. */
  public static Misbehaviour named(String mode) {
    return valueOf(mode.toUpperCase(Locale.ROOT).replace('-', '_'));
  }

  public void in(ClientBuilder builder) {
    change.accept(builder);
  }

  /** Leases are trusted for their whole time. */
  private static final class NoMargin extends State {
    NoMargin(long span, RandomGenerator jitter) {
      super(span, jitter);
    }

    @Override
    protected Leases newLeases(long sentAt, long logicalMs, long ttl, long linger) {
      return new Leases(sentAt, logicalMs, ttl, linger) {
        @Override
        protected long safeEnd(long begin, long span) {
          return begin + span;
        }
      };
    }
  }

  /** Tokens are given without a look at the clock. */
  private static final class NoClock extends State {
    NoClock(long span, RandomGenerator jitter) {
      super(span, jitter);
    }

    @Override
    protected Leases newLeases(long sentAt, long logicalMs, long ttl, long linger) {
      return new Leases(sentAt, logicalMs, ttl, linger) {
        @Override
        protected long safeEnd(long begin, long span) {
          return Long.MAX_VALUE;
        }
      };
    }
  }

  /** Heartbeats go out more often than they have to. */
  private static final class Chatty extends State {
    Chatty(long span, RandomGenerator jitter) {
      super(span, jitter);
    }

    @Override
    protected Leases newLeases(long sentAt, long logicalMs, long ttl, long linger) {
      return new Leases(sentAt, logicalMs, ttl, linger) {
        @Override
        public synchronized long heartbeatDue() {
          return super.heartbeatDue() - ttl * 19 / 60;
        }
      };
    }
  }

  /** What had no answer when the stream broke goes out again under another id. */
  private static final class RetryNewId extends State {
    RetryNewId(long span, RandomGenerator jitter) {
      super(span, jitter);
    }

    @Override
    protected void streamBroke() {
      super.streamBroke();
      askAgainUnderNewIds(request -> true);
    }
  }

  /** A request is acknowledged once it was sent, before its answer came. */
  private static final class AckEarly extends State {
    AckEarly(long span, RandomGenerator jitter) {
      super(
          span,
          jitter,
          new InFlight() {
            @Override
            protected long ackedThrough() {
              List<Long> unsent = idsOf(request -> !request.wasSent());
              return unsent.isEmpty() ? lastId() : unsent.get(0) - 1;
            }
          });
    }
  }

  /** A request whose caller is gone is not cancelled. */
  private static final class ForgetCancel extends State {
    ForgetCancel(long span, RandomGenerator jitter) {
      super(span, jitter);
    }

    @Override
    protected void stageCancel(long target, Request request) {}
  }

  /** A refused request keeps the session alive. */
  private static final class CountFailures extends State {
    CountFailures(long span, RandomGenerator jitter) {
      super(span, jitter);
    }

    @Override
    protected void noteTime(long now, Answer answer) {
      super.noteTime(now, answer);
      if (answer.hasFailure() && leases() != null) {
        leases().answered(now, 0);
      }
    }

    @Override
    protected boolean isDenied(
        long now, String address, Failure failure, Collection<String> nodes) {
      return false;
    }
  }

  /** All locks are asked for in the root group. */
  private static final class IgnoreMap extends State {
    IgnoreMap(long span, RandomGenerator jitter) {
      super(span, jitter);
    }

    @Override
    protected void learn(GroupMap map) {}
  }

  /** The certificate of a node is not checked. */
  private static final class TrustAnyNode extends Security {
    TrustAnyNode(Files files) {
      super(files);
    }

    @Override
    protected X509ExtendedTrustManager trusts(List<X509Certificate> authorities) {
      return (X509ExtendedTrustManager) InsecureTrustManagerFactory.INSTANCE.getTrustManagers()[0];
    }
  }

  /** The file with the token is read once. */
  private static Security.Files withFixedCredential(Security.Files files) {
    if (files.credential() == null) {
      return files;
    }
    String credential = files.credential().get();
    return new Security.Files(
        files.ca(), files.cert(), files.key(), files.verify(), () -> credential);
  }
}
