package holdfast.client;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotNull;

import holdfast.v1.AcquireRequest;
import holdfast.v1.AcquireResponse;
import holdfast.v1.Answer;
import holdfast.v1.ClientFrame;
import holdfast.v1.Failure;
import holdfast.v1.Grant;
import holdfast.v1.Guarantee;
import holdfast.v1.LockServiceGrpc;
import holdfast.v1.Mode;
import holdfast.v1.OpenSessionResponse;
import holdfast.v1.Operation;
import holdfast.v1.Operation.KindCase;
import holdfast.v1.Reason;
import holdfast.v1.ServerFrame;
import holdfast.v1.StatusRequest;
import holdfast.v1.StatusResponse;
import io.grpc.Server;
import io.grpc.netty.shaded.io.grpc.netty.NettyServerBuilder;
import io.grpc.stub.StreamObserver;
import java.io.IOException;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;

/** A node that does what the test says, frame by frame. No real cluster moves slots yet. */
final class FakeNode extends LockServiceGrpc.LockServiceImplBase implements AutoCloseable {
  private static final long PATIENCE_SECONDS = 10;

  private final Server server;
  private final BlockingQueue<Stream> streams = new LinkedBlockingQueue<>();

  FakeNode() throws IOException {
    InetSocketAddress any = new InetSocketAddress(InetAddress.getLoopbackAddress(), 0);
    server = NettyServerBuilder.forAddress(any).addService(this).build().start();
  }

  String address() {
    return "127.0.0.1:" + server.getPort();
  }

  @Override
  public StreamObserver<ClientFrame> session(StreamObserver<ServerFrame> toClient) {
    Stream stream = new Stream(toClient);
    streams.add(stream);
    return stream;
  }

  @Override
  public void status(StatusRequest request, StreamObserver<StatusResponse> answer) {
    answer.onNext(StatusResponse.newBuilder().setName(request.getName()).build());
    answer.onCompleted();
  }

  /** The next stream, after its hello was answered. */
  Stream welcome(OpenSessionResponse welcome) throws InterruptedException {
    Stream stream = nextStream();
    stream.welcome(welcome);
    return stream;
  }

  /** The next stream. Its hello is not answered yet. */
  Stream nextStream() throws InterruptedException {
    Stream stream = streams.poll(PATIENCE_SECONDS, TimeUnit.SECONDS);
    assertNotNull(stream, "no stream in time");
    return stream;
  }

  /** Whether a client has come that was not welcomed. */
  boolean hasVisitor() {
    return !streams.isEmpty();
  }

  @Override
  public void close() {
    server.shutdownNow();
  }

  /** The stream of a session, seen from the node. */
  static final class Stream implements StreamObserver<ClientFrame> {
    private final StreamObserver<ServerFrame> toClient;
    private final BlockingQueue<ClientFrame> frames = new LinkedBlockingQueue<>();
    private Operation hello;

    private Stream(StreamObserver<ServerFrame> toClient) {
      this.toClient = toClient;
    }

    Operation hello() {
      return hello;
    }

    /** Answers the hello. */
    void welcome(OpenSessionResponse welcome) throws InterruptedException {
      hello = nextFrame().getOperations(0);
      answer(
          hello.getKindCase() == KindCase.OPEN
              ? Answer.newBuilder().setRequestId(hello.getOpen().getRequestId()).setOpen(welcome)
              : Answer.newBuilder()
                  .setRequestId(hello.getResume().getRequestId())
                  .setResume(welcome));
    }

    @Override
    public void onNext(ClientFrame frame) {
      frames.add(frame);
    }

    @Override
    public void onError(Throwable error) {}

    @Override
    public void onCompleted() {}

    ClientFrame nextFrame() throws InterruptedException {
      ClientFrame frame = frames.poll(PATIENCE_SECONDS, TimeUnit.SECONDS);
      assertNotNull(frame, "no frame in time");
      return frame;
    }

    /** The only operation of the next frame. */
    Operation next(KindCase kind) throws InterruptedException {
      Operation operation = nextFrame().getOperations(0);
      assertEquals(kind, operation.getKindCase());
      return operation;
    }

    AcquireRequest nextAcquire(String name) throws InterruptedException {
      AcquireRequest acquire = next(KindCase.ACQUIRE).getAcquire();
      assertEquals(name, acquire.getName());
      return acquire;
    }

    void send(ServerFrame frame) {
      toClient.onNext(frame);
    }

    void answer(Answer.Builder answer) {
      send(ServerFrame.newBuilder().addAnswers(answer).build());
    }

    void grant(AcquireRequest acquire, long token) {
      Grant.Builder grant =
          Grant.newBuilder()
              .setName(acquire.getName())
              .setToken(token)
              .setMode(Mode.MODE_EXCLUSIVE)
              .setGuarantee(Guarantee.GUARANTEE_LINEARIZABLE)
              .setAcquireRequestId(acquire.getRequestId());
      answer(
          Answer.newBuilder()
              .setRequestId(acquire.getRequestId())
              .setAcquire(AcquireResponse.newBuilder().setGranted(grant)));
    }

    /** Another group owns the lock, by the map with this epoch. */
    void refuse(long requestId, long epoch) {
      Failure.Builder failure =
          Failure.newBuilder().setReason(Reason.REASON_WRONG_GROUP).setMapEpoch(epoch);
      answer(Answer.newBuilder().setRequestId(requestId).setFailure(failure));
    }
  }
}
