package holdfast.client;

import holdfast.client.core.Failures;
import holdfast.client.core.Session.Contact;
import holdfast.v1.ClientFrame;
import holdfast.v1.Failure;
import holdfast.v1.LockServiceGrpc;
import holdfast.v1.ServerFrame;
import io.grpc.CallOptions;
import io.grpc.ClientCall;
import io.grpc.ConnectivityState;
import io.grpc.ManagedChannel;
import io.grpc.Metadata;
import io.grpc.MethodDescriptor;
import io.grpc.Status;
import java.io.ByteArrayInputStream;
import java.io.InputStream;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.ScheduledThreadPoolExecutor;
import java.util.concurrent.TimeUnit;

/**
 * The stream {@code Session} to one node, on a connection of its own. Its events come in the thread
 * of the connection, or in the one that called.
 */
final class NodeStream {
  /** What happens to a stream. */
  interface Listener {
    void onConnected(NodeStream stream);

    void onConnectFailed(NodeStream stream, Contact contact, Failure failure);

    void onFrame(NodeStream stream, ServerFrame frame);

    /** There is room for more frames. */
    void onRoom(NodeStream stream);

    /** The node answered a ping. */
    void onPong(NodeStream stream);

    /** {@code isFromNode}: a node said why. Otherwise a proxy may have, or this library. */
    void onEnded(NodeStream stream, Failure failure, boolean isFromNode);
  }

  private static final long FAREWELL_MS = 1_000;
  private static final int FRAMES_AHEAD = 4;

  /** Any answer shows that the node is there, also one that says that it knows no such call. */
  private static final MethodDescriptor<byte[], byte[]> PING =
      MethodDescriptor.<byte[], byte[]>newBuilder()
          .setType(MethodDescriptor.MethodType.UNARY)
          .setFullMethodName("grpc.health.v1.Health/Check")
          .setRequestMarshaller(new Ignored())
          .setResponseMarshaller(new Ignored())
          .build();

  private static final ScheduledExecutorService FAREWELLS = farewells();

  private final String address;
  private final ManagedChannel channel;
  private final ClientCall<ClientFrame, ServerFrame> call;
  private final Listener listener;
  private volatile boolean isConnected;

  private NodeStream(String address, ManagedChannel channel, Listener listener) {
    this.address = address;
    this.channel = channel;
    this.listener = listener;
    this.call = channel.newCall(LockServiceGrpc.getSessionMethod(), CallOptions.DEFAULT);
  }

  /** Dials. What becomes of it is told to the listener, but not before this has returned. */
  static NodeStream dial(String address, Security security, Listener listener) throws Exception {
    Metadata headers = security.headers();
    ManagedChannel channel = security.channel(address).build();
    return new NodeStream(address, channel, listener).begin(headers);
  }

  private NodeStream begin(Metadata headers) {
    call.start(new Events(), headers);
    call.request(FRAMES_AHEAD);
    onState();
    return this;
  }

  private void onState() {
    ConnectivityState state = channel.getState(true);
    if (state == ConnectivityState.READY) {
      isConnected = true;
      listener.onConnected(this);
    } else if (state != ConnectivityState.SHUTDOWN) {
      channel.notifyWhenStateChanged(state, this::onState);
    }
  }

  String address() {
    return address;
  }

  boolean hasRoom() {
    return call.isReady();
  }

  void send(ClientFrame frame) {
    call.sendMessage(frame);
  }

  /** Asks whether the node is there. */
  void ping() {
    ClientCall<byte[], byte[]> ping = channel.newCall(PING, CallOptions.DEFAULT);
    ping.start(
        new ClientCall.Listener<>() {
          @Override
          public void onClose(Status status, Metadata trailers) {
            if (status.getCode() != Status.Code.UNAVAILABLE
                && status.getCode() != Status.Code.CANCELLED) {
              listener.onPong(NodeStream.this);
            }
          }
        },
        new Metadata());
    ping.request(1);
    ping.sendMessage(new byte[0]);
    ping.halfClose();
  }

  /** With a farewell, the node knows that the session goes on elsewhere. */
  void leave(boolean withFarewell) {
    if (!withFarewell || !isConnected) {
      channel.shutdownNow();
      return;
    }
    call.sendMessage(ClientFrame.getDefaultInstance());
    call.halfClose();
    // To hang up earlier could overtake the farewell.
    channel.shutdown();
    FAREWELLS.schedule(channel::shutdownNow, FAREWELL_MS, TimeUnit.MILLISECONDS);
  }

  private static ScheduledExecutorService farewells() {
    ScheduledThreadPoolExecutor executor =
        new ScheduledThreadPoolExecutor(
            1,
            task -> {
              Thread thread = new Thread(task, "holdfast-farewell");
              thread.setDaemon(true);
              return thread;
            });
    executor.setKeepAliveTime(10, TimeUnit.SECONDS);
    executor.allowCoreThreadTimeOut(true);
    return executor;
  }

  private final class Events extends ClientCall.Listener<ServerFrame> {
    @Override
    public void onMessage(ServerFrame frame) {
      listener.onFrame(NodeStream.this, frame);
      call.request(1);
    }

    @Override
    public void onReady() {
      listener.onRoom(NodeStream.this);
    }

    @Override
    public void onClose(Status status, Metadata trailers) {
      if (isConnected) {
        Failure failure = Statuses.failureOf(status, trailers);
        listener.onEnded(NodeStream.this, failure, Statuses.isOfNode(trailers));
      } else {
        Failure failure = Statuses.failureToConnect(status);
        listener.onConnectFailed(NodeStream.this, Statuses.contactOf(status), failure);
      }
      channel.shutdownNow();
    }
  }

  private static final class Ignored implements MethodDescriptor.Marshaller<byte[]> {
    @Override
    public InputStream stream(byte[] value) {
      return new ByteArrayInputStream(value);
    }

    @Override
    public byte[] parse(InputStream stream) {
      return new byte[0];
    }
  }

  static Failure silence() {
    return Failures.retryable("the node has fallen silent");
  }
}
