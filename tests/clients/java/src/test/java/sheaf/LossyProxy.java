package sheaf;

import java.io.IOException;
import java.io.InputStream;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.nio.charset.StandardCharsets;
import java.util.concurrent.atomic.AtomicBoolean;

/**
 * A proxy between a driver and the server that drops the reply to the message with a marker.
 *
 * <pre>
 *   driver ──> message with the marker ──> server
 *   driver ──X connection closed       <── reply
 * </pre>
 */
class LossyProxy implements AutoCloseable {
    private final ServerSocket listener = new ServerSocket(0, 50, InetAddress.getLoopbackAddress());
    private final int target;
    private String marker;
    private int lost;

    LossyProxy(int target) throws IOException {
        this.target = target;
        background(this::accept);
    }

    int port() {
        return listener.getLocalPort();
    }

    synchronized void lose(String marker) {
        this.marker = marker;
    }

    /** Number of replies dropped so far. */
    synchronized int lost() {
        return lost;
    }

    @Override
    public void close() throws IOException {
        listener.close();
    }

    private static void background(Runnable work) {
        Thread thread = new Thread(work);
        thread.setDaemon(true);
        thread.start();
    }

    private void accept() {
        try {
            while (true) {
                Socket near = listener.accept();
                Socket far = new Socket(InetAddress.getLoopbackAddress(), target);
                AtomicBoolean doomed = new AtomicBoolean();
                background(() -> pump(near, far, doomed, true));
                background(() -> pump(far, near, doomed, false));
            }
        } catch (IOException closed) {
            // The test has ended.
        }
    }

    private void pump(Socket from, Socket to, AtomicBoolean doomed, boolean outward) {
        byte[] buffer = new byte[1 << 16];
        try (from; to) {
            InputStream in = from.getInputStream();
            for (int n; (n = in.read(buffer)) > 0; ) {
                if (!passes(new String(buffer, 0, n, StandardCharsets.ISO_8859_1), doomed, outward)) return;
                to.getOutputStream().write(buffer, 0, n);
            }
        } catch (IOException gone) {
            // One end closed; close the other.
        }
    }

    private synchronized boolean passes(String data, AtomicBoolean doomed, boolean outward) {
        if (outward) {
            if (marker != null && data.contains(marker)) {
                marker = null;
                doomed.set(true);
            }
            return true;
        }
        if (doomed.get()) lost++;
        return !doomed.get();
    }
}
