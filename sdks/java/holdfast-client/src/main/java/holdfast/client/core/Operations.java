package holdfast.client.core;

import com.google.protobuf.ByteString;
import holdfast.v1.CancelRequest;
import holdfast.v1.CloseSessionRequest;
import holdfast.v1.ConvertRequest;
import holdfast.v1.Grant;
import holdfast.v1.Guarantee;
import holdfast.v1.KeepAliveRequest;
import holdfast.v1.Mode;
import holdfast.v1.OpenSessionRequest;
import holdfast.v1.Operation;
import holdfast.v1.Policy;
import holdfast.v1.ProclaimRequest;
import holdfast.v1.ReleaseRequest;
import holdfast.v1.RenewRequest;
import holdfast.v1.StatusRequest;
import holdfast.v1.Tier;
import holdfast.v1.TransferRequest;

/**
 * The operations of a session, before they have an id, and before it is known which hold they name.
 */
public final class Operations {
  private Operations() {}

  static Operation open() {
    return Operation.newBuilder().setOpen(OpenSessionRequest.getDefaultInstance()).build();
  }

  static Operation keepAlive() {
    return Operation.newBuilder().setKeepAlive(KeepAliveRequest.getDefaultInstance()).build();
  }

  static Operation close() {
    return Operation.newBuilder().setClose(CloseSessionRequest.getDefaultInstance()).build();
  }

  public static Operation release() {
    return Operation.newBuilder().setRelease(ReleaseRequest.getDefaultInstance()).build();
  }

  /** The release of a grant that has no guard. */
  static Operation release(Grant grant, long requestId) {
    long acquire = grant.getAcquireRequestId();
    boolean isBestEffort = grant.getGuarantee() != Guarantee.GUARANTEE_LINEARIZABLE;
    ReleaseRequest.Builder release =
        ReleaseRequest.newBuilder()
            .setName(grant.getName())
            .setToken(grant.getToken())
            .setAcquireRequestId(acquire == 0 ? requestId : acquire)
            .setTier(isBestEffort ? Tier.TIER_EFFICIENCY : Tier.TIER_CORRECTNESS);
    return Operation.newBuilder().setRelease(release).build();
  }

  static Operation cancel(long target, boolean isBestEffort) {
    CancelRequest.Builder cancel = CancelRequest.newBuilder().setTarget(target);
    cancel.setTier(isBestEffort ? Tier.TIER_EFFICIENCY : Tier.TIER_CORRECTNESS);
    return Operation.newBuilder().setCancel(cancel).build();
  }

  /** Without a TTL, the hold keeps the one that it has. */
  public static Operation renew(Long ttlMs) {
    RenewRequest.Builder renew = RenewRequest.newBuilder();
    if (ttlMs != null) {
      renew.setTtlMs(ttlMs);
    }
    return Operation.newBuilder().setRenew(renew).build();
  }

  public static Operation convert(Mode mode, long waitMs) {
    ConvertRequest.Builder convert =
        ConvertRequest.newBuilder().setMode(mode).setWaitMs(waitMs).setPolicy(Policy.POLICY_DETECT);
    return Operation.newBuilder().setConvert(convert).build();
  }

  public static Operation proclaim(ByteString metadata) {
    ProclaimRequest.Builder proclaim = ProclaimRequest.newBuilder().setMetadata(metadata);
    return Operation.newBuilder().setProclaim(proclaim).build();
  }

  public static Operation transfer(String publicSessionId) {
    TransferRequest.Builder transfer = TransferRequest.newBuilder();
    transfer.setToPublicSessionId(publicSessionId);
    return Operation.newBuilder().setTransfer(transfer).build();
  }

  public static Operation status(String name) {
    return Operation.newBuilder().setStatus(StatusRequest.newBuilder().setName(name)).build();
  }

  static Operation complete(Operation template, long requestId, Hold hold) {
    Operation.Builder operation = template.toBuilder();
    switch (template.getKindCase()) {
      case OPEN -> operation.getOpenBuilder().setRequestId(requestId);
      case KEEP_ALIVE -> operation.getKeepAliveBuilder().setRequestId(requestId);
      case CLOSE -> operation.getCloseBuilder().setRequestId(requestId);
      case ACQUIRE -> operation.getAcquireBuilder().setRequestId(requestId);
      case ACQUIRE_ALL -> operation.getAcquireAllBuilder().setRequestId(requestId);
      case CANCEL -> operation.getCancelBuilder().setRequestId(requestId);
      case STATUS -> operation.getStatusBuilder().setRequestId(requestId);
      case RELEASE -> operation.getReleaseBuilder().setRequestId(requestId);
      case RENEW -> operation.getRenewBuilder().setRequestId(requestId);
      case CONVERT -> operation.getConvertBuilder().setRequestId(requestId);
      case PROCLAIM -> operation.getProclaimBuilder().setRequestId(requestId);
      case TRANSFER -> operation.getTransferBuilder().setRequestId(requestId);
      case RESUME, KIND_NOT_SET -> throw new IllegalArgumentException("no request of a program");
    }
    if (hold != null) {
      name(operation, hold);
    }
    return operation.build();
  }

  private static void name(Operation.Builder operation, Hold hold) {
    String name = hold.name();
    long token = hold.terms().token();
    long acquire = hold.key.acquire();
    Tier tier = hold.tier();
    switch (operation.getKindCase()) {
      case RELEASE ->
          operation
              .getReleaseBuilder()
              .setName(name)
              .setToken(token)
              .setAcquireRequestId(acquire)
              .setTier(tier);
      case RENEW ->
          operation
              .getRenewBuilder()
              .setName(name)
              .setToken(token)
              .setAcquireRequestId(acquire)
              .setTier(tier);
      case CONVERT ->
          operation
              .getConvertBuilder()
              .setName(name)
              .setToken(token)
              .setAcquireRequestId(acquire)
              .setTier(tier);
      case PROCLAIM ->
          operation
              .getProclaimBuilder()
              .setName(name)
              .setToken(token)
              .setAcquireRequestId(acquire)
              .setTier(tier);
      case TRANSFER -> operation.getTransferBuilder().setName(name).setToken(token).setTier(tier);
      default -> throw new IllegalArgumentException("this operation names no hold");
    }
  }
}
