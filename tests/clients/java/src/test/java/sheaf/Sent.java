package sheaf;

import com.mongodb.event.CommandListener;
import com.mongodb.event.CommandStartedEvent;
import java.util.ArrayList;
import java.util.List;
import org.bson.BsonDocument;

/** Records the commands that a client sends, by command monitoring. */
class Sent implements CommandListener {
    private record Command(String name, BsonDocument body) {}

    private final List<Command> commands = new ArrayList<>();

    @Override
    public synchronized void commandStarted(CommandStartedEvent e) {
        commands.add(new Command(e.getCommandName(), e.getCommand().clone()));
    }

    /** The commands of this name, oldest first. */
    synchronized List<BsonDocument> named(String name) {
        return commands.stream().filter(c -> c.name.equals(name)).map(Command::body).toList();
    }

    /** For each of them, whether it carried a txnNumber. */
    List<Boolean> numbered(String name) {
        return named(name).stream().map(c -> c.containsKey("txnNumber")).toList();
    }
}
