package sheaf;

import java.io.IOException;
import java.io.InputStream;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.nio.charset.StandardCharsets;
import java.util.concurrent.atomic.AtomicBoolean;

/**
 * Stands between a driver and the server and loses the answer to the message that has a marker.
 *
 * <pre>
 *   driver ──> message with the marker ──> server
 *   driver ──X connection closed       <── answer
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

    /** Answers lost so far. */
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
            // The test is over.
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
            // One end went; the other goes with it.
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
