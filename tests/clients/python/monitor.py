"""Records the commands that a client sends, by command monitoring."""

import copy

from pymongo.monitoring import CommandListener


class Sent(CommandListener):
    def __init__(self):
        self.commands = []

    def started(self, event):
        self.commands.append((event.command_name, copy.copy(event.command)))

    def succeeded(self, event):
        pass

    def failed(self, event):
        pass

    def named(self, name):
        """The commands of this name, oldest first."""
        return [command for found, command in self.commands if found == name]
