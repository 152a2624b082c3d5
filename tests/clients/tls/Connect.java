import com.mongodb.ConnectionString;
import com.mongodb.MongoClientSettings;
import com.mongodb.client.MongoClient;
import com.mongodb.client.MongoClients;
import com.mongodb.client.model.ReplaceOptions;
import com.mongodb.event.ServerHeartbeatFailedEvent;
import com.mongodb.event.ServerMonitorListener;
import java.io.ByteArrayInputStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.KeyFactory;
import java.security.KeyStore;
import java.security.cert.Certificate;
import java.security.cert.CertificateFactory;
import java.security.spec.PKCS8EncodedKeySpec;
import java.util.Base64;
import java.util.logging.Level;
import java.util.logging.Logger;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import javax.net.ssl.KeyManagerFactory;
import javax.net.ssl.SSLContext;
import javax.net.ssl.TrustManagerFactory;
import org.bson.Document;

/**
 * Connects to a URI and writes "ok", or the driver's error on one line. The driver's URIs have no
 * options for files: tlsCAFile and tlsCertificateKeyFile are read here.
 */
public class Connect {
    public static void main(String[] arguments) throws Exception {
        Logger.getLogger("org.mongodb.driver").setLevel(Level.OFF);
        String uri = arguments[0];
        MongoClientSettings.Builder settings = MongoClientSettings.builder();
        if (uri.contains("tls=true")) {
            SSLContext context = context(option(uri, "tlsCAFile"), option(uri, "tlsCertificateKeyFile"));
            settings.applyToSslSettings(ssl -> ssl.context(context));
        }
        settings.applyToServerSettings(server -> server.addServerMonitorListener(new ServerMonitorListener() {
            @Override
            public void serverHeartbeatFailed(ServerHeartbeatFailedEvent event) {
                fail(event.getThrowable());
            }
        }));
        settings.applyConnectionString(new ConnectionString(
            uri.replaceAll("&tls(CA|CertificateKey)File=[^&]*", "").replace("TimeoutMS=4000", "TimeoutMS=30000")));
        try (MongoClient client = MongoClients.create(settings.build())) {
            var collection = client.getDatabase("java_tls").getCollection("documents");
            Document id = new Document("_id", 1);
            collection.replaceOne(id, new Document("text", "x".repeat(100_000)), new ReplaceOptions().upsert(true));
            String text = collection.find(id).first().getString("text");
            System.out.println(text.length() == 100_000 ? "ok" : "wrong document");
            Runtime.getRuntime().halt(0);
        } catch (Exception e) {
            fail(e);
        }
    }

    /** Writes the error with its causes, and ends at once: the driver would try again. */
    private static synchronized void fail(Throwable error) {
        StringBuilder line = new StringBuilder();
        for (Throwable cause = error; cause != null; cause = cause.getCause()) {
            line.append(cause.toString().replace('\n', ' ')).append(" ");
        }
        System.out.println(line);
        Runtime.getRuntime().halt(0);
    }

    private static String option(String uri, String name) {
        Matcher found = Pattern.compile("[?&]" + name + "=([^&]*)").matcher(uri);
        return found.find() ? found.group(1) : null;
    }

    private static SSLContext context(String authority, String own) throws Exception {
        KeyStore trusted = KeyStore.getInstance(KeyStore.getDefaultType());
        trusted.load(null, null);
        trusted.setCertificateEntry("ca", certificate(Files.readString(Path.of(authority))));
        TrustManagerFactory trust = TrustManagerFactory.getInstance(TrustManagerFactory.getDefaultAlgorithm());
        trust.init(trusted);
        KeyStore keys = KeyStore.getInstance(KeyStore.getDefaultType());
        keys.load(null, null);
        if (own != null) {
            String text = Files.readString(Path.of(own));
            Matcher key = Pattern.compile("-----BEGIN PRIVATE KEY-----(.*)-----END PRIVATE KEY-----", Pattern.DOTALL).matcher(text);
            key.find();
            byte[] encoded = Base64.getMimeDecoder().decode(key.group(1));
            var decoded = KeyFactory.getInstance("EC").generatePrivate(new PKCS8EncodedKeySpec(encoded));
            keys.setKeyEntry("own", decoded, new char[0], new Certificate[] {certificate(text)});
        }
        KeyManagerFactory manager = KeyManagerFactory.getInstance(KeyManagerFactory.getDefaultAlgorithm());
        manager.init(keys, new char[0]);
        SSLContext context = SSLContext.getInstance("TLS");
        context.init(manager.getKeyManagers(), trust.getTrustManagers(), null);
        return context;
    }

    private static Certificate certificate(String pem) throws Exception {
        byte[] bytes = pem.substring(0, pem.indexOf("-----END CERTIFICATE-----") + 25).getBytes(StandardCharsets.US_ASCII);
        return CertificateFactory.getInstance("X.509").generateCertificate(new ByteArrayInputStream(bytes));
    }
}
