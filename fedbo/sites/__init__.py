"""Studies of which each agent runs at a site of its own: keys, documents, the wire, the server and the sites."""
