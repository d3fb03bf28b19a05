package holdfast.client;

import io.grpc.Metadata;
import io.grpc.netty.shaded.io.grpc.netty.GrpcSslContexts;
import io.grpc.netty.shaded.io.grpc.netty.NettyChannelBuilder;
import io.grpc.netty.shaded.io.netty.channel.ChannelOption;
import io.grpc.netty.shaded.io.netty.handler.ssl.SslContextBuilder;
import io.grpc.netty.shaded.io.netty.handler.ssl.SslProvider;
import java.io.IOException;
import java.io.InputStream;
import java.net.Socket;
import java.nio.file.Path;
import java.security.GeneralSecurityException;
import java.security.KeyStore;
import java.security.cert.Certificate;
import java.security.cert.CertificateException;
import java.security.cert.CertificateFactory;
import java.security.cert.X509Certificate;
import java.util.Collection;
import java.util.List;
import java.util.Set;
import java.util.TreeSet;
import java.util.function.Supplier;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import javax.net.ssl.SSLEngine;
import javax.net.ssl.TrustManager;
import javax.net.ssl.TrustManagerFactory;
import javax.net.ssl.X509ExtendedTrustManager;

/**
 * How a client reaches a cluster, and proves who it is. With an authority, it speaks TLS and
 * nothing else.
 *
 * <p>A node's certificate says what it is for in a URI: {@code holdfast://CLUSTER/node/3}. A client
 * compares the cluster with that of its authority, {@code holdfast://CLUSTER/ca}.
 */
class Security {
  /**
   * The files of a client, and what it shows.
   *
   * @param ca the file of the cluster's authority; null for plaintext
   * @param cert the file of the client's own certificate, and {@code key} that of its key; or null
   * @param credential gives the present token; null for none
   */
  record Files(Path ca, Path cert, Path key, Verify verify, Supplier<String> credential) {}

  private static final int CONNECT_TIMEOUT_MS = 1_000;
  private static final int MESSAGE_BYTES_MAX = 17 * 1024 * 1024;
  private static final int URI_NAME = 6;
  private static final Pattern NAME = Pattern.compile("holdfast://([^/]+)/(node/[1-9][0-9]*|ca)");
  private static final Metadata.Key<String> AUTHORIZATION =
      Metadata.Key.of("authorization", Metadata.ASCII_STRING_MARSHALLER);

  private final Path ca;
  private final Path cert;
  private final Path key;
  private final Verify verify;
  private final Supplier<String> credential;

  Security(Files files) {
    ca = files.ca;
    cert = files.cert;
    key = files.key;
    verify = files.verify;
    credential = files.credential;
  }

  /** Mistakes are told at once, and not when a node is dialled. */
  final void check() {
    if (ca == null && (cert != null || key != null)) {
      throw new IllegalArgumentException(
          "a certificate is of no use without TLS: give ca, the file of the cluster's authority");
    }
    if (cert != null && key == null) {
      throw new IllegalArgumentException("a certificate needs its key: give the file of the key");
    }
    if (ca != null) {
      try {
        tls();
      } catch (IOException | GeneralSecurityException error) {
        throw new IllegalArgumentException("the files for TLS cannot be used: " + error, error);
      }
    }
    try {
      headers();
    } catch (RuntimeException error) {
      throw new IllegalArgumentException("the credential cannot be read: " + error, error);
    }
  }

  final boolean isTls() {
    return ca != null;
  }

  /** A connection to this node alone. Files are read again: certificates are replaced. */
  final NettyChannelBuilder channel(String address) throws IOException, GeneralSecurityException {
    int colon = address.lastIndexOf(':');
    String host = address.substring(0, colon).replaceAll("[\\[\\]]", "");
    int port = Integer.parseInt(address.substring(colon + 1));
    NettyChannelBuilder builder =
        NettyChannelBuilder.forAddress(host, port)
            .directExecutor()
            .disableRetry()
            .disableServiceConfigLookUp()
            .withOption(ChannelOption.CONNECT_TIMEOUT_MILLIS, CONNECT_TIMEOUT_MS)
            .maxInboundMessageSize(MESSAGE_BYTES_MAX);
    if (ca == null) {
      builder.usePlaintext();
    } else {
      builder.sslContext(tls().build());
    }
    return builder;
  }

  /** What a call says about its caller. */
  final Metadata headers() {
    Metadata headers = new Metadata();
    if (credential != null) {
      headers.put(AUTHORIZATION, "Bearer " + credential.get().strip());
    }
    return headers;
  }

  private SslContextBuilder tls() throws IOException, GeneralSecurityException {
    List<X509Certificate> authorities = certificates(ca);
    SslContextBuilder builder = SslContextBuilder.forClient().trustManager(trusts(authorities));
    builder.protocols("TLSv1.3");
    if (cert != null) {
      builder.keyManager(cert.toFile(), key.toFile());
    }
    return GrpcSslContexts.configure(builder, SslProvider.JDK);
  }

  /** Which certificates are those of the cluster's nodes. */
  protected X509ExtendedTrustManager trusts(List<X509Certificate> authorities)
      throws IOException, GeneralSecurityException {
    X509ExtendedTrustManager signed = signedBy(authorities);
    if (verify == Verify.HOST) {
      return signed;
    }
    Set<String> clusters = new TreeSet<>();
    authorities.forEach(authority -> clusters.addAll(clusters(authority, "ca")));
    if (clusters.isEmpty()) {
      throw new IllegalArgumentException(
          ca
              + " does not say of which cluster it is: use the authority that `holdfast cert ca`"
              + " made, or compare the host with Verify.HOST");
    }
    return new NodesOf(clusters, signed);
  }

  private static List<X509Certificate> certificates(Path file)
      throws IOException, CertificateException {
    try (InputStream content = java.nio.file.Files.newInputStream(file)) {
      Collection<? extends Certificate> all =
          CertificateFactory.getInstance("X.509").generateCertificates(content);
      return all.stream().map(X509Certificate.class::cast).toList();
    }
  }

  private static X509ExtendedTrustManager signedBy(List<X509Certificate> authorities)
      throws IOException, GeneralSecurityException {
    KeyStore store = KeyStore.getInstance(KeyStore.getDefaultType());
    store.load(null, null);
    for (X509Certificate authority : authorities) {
      store.setCertificateEntry(String.valueOf(store.size()), authority);
    }
    TrustManagerFactory factory =
        TrustManagerFactory.getInstance(TrustManagerFactory.getDefaultAlgorithm());
    factory.init(store);
    for (TrustManager manager : factory.getTrustManagers()) {
      if (manager instanceof X509ExtendedTrustManager trusted) {
        return trusted;
      }
    }
    throw new GeneralSecurityException("this Java has no trust manager for X.509");
  }

  /** The clusters that the URIs of a certificate name, for this purpose. */
  private static Set<String> clusters(X509Certificate certificate, String purpose) {
    Set<String> clusters = new TreeSet<>();
    try {
      Collection<List<?>> names = certificate.getSubjectAlternativeNames();
      for (List<?> name : names == null ? List.<List<?>>of() : names) {
        Matcher matcher = NAME.matcher(String.valueOf(name.get(1)));
        boolean isUri = Integer.valueOf(URI_NAME).equals(name.get(0));
        if (isUri && matcher.matches() && matcher.group(2).startsWith(purpose)) {
          clusters.add(matcher.group(1));
        }
      }
    } catch (CertificateException unreadable) {
      return Set.of();
    }
    return clusters;
  }

  /** Trusts certificates of nodes of these clusters, on whatever host. */
  private static final class NodesOf extends X509ExtendedTrustManager {
    private final Set<String> clusters;
    private final X509ExtendedTrustManager authority;

    NodesOf(Set<String> clusters, X509ExtendedTrustManager authority) {
      this.clusters = clusters;
      this.authority = authority;
    }

    @Override
    public void checkServerTrusted(X509Certificate[] chain, String authType)
        throws CertificateException {
      authority.checkServerTrusted(chain, authType);
      if (clusters(chain[0], "node/").stream().noneMatch(clusters::contains)) {
        throw new CertificateException(
            "the certificate is none of a node of "
                + String.join(", ", clusters)
                + "; check the endpoints");
      }
    }

    @Override
    public void checkServerTrusted(X509Certificate[] chain, String authType, Socket socket)
        throws CertificateException {
      checkServerTrusted(chain, authType);
    }

    @Override
    public void checkServerTrusted(X509Certificate[] chain, String authType, SSLEngine engine)
        throws CertificateException {
      checkServerTrusted(chain, authType);
    }

    @Override
    public void checkClientTrusted(X509Certificate[] chain, String authType)
        throws CertificateException {
      throw new CertificateException("this is a client");
    }

    @Override
    public void checkClientTrusted(X509Certificate[] chain, String authType, Socket socket)
        throws CertificateException {
      throw new CertificateException("this is a client");
    }

    @Override
    public void checkClientTrusted(X509Certificate[] chain, String authType, SSLEngine engine)
        throws CertificateException {
      throw new CertificateException("this is a client");
    }

    @Override
    public X509Certificate[] getAcceptedIssuers() {
      return authority.getAcceptedIssuers();
    }
  }
}
